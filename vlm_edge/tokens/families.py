"""
Families: Hugging Face `model_type` → rule with its numbers.

The numbers are those of the published checkpoints' preprocessor_config.json (not the class defaults of transformers).
"""

from vlm_edge.tokens.rules import MergedGrid, Rule, TimedGrid

QWEN2_VL = MergedGrid(patch=14, merge=2, min_pixels=3_136, max_pixels=12_845_056)

FAMILIES: dict[str, Rule] = {
    "qwen2_vl": QWEN2_VL,
    "qwen2_5_vl": QWEN2_VL,
    "qwen3_vl": TimedGrid(
        patch=16,
        merge=2,
        min_pixels=65_536,
        max_pixels=16_777_216,
        video_min_pixels=4_096,
        video_max_pixels=25_165_824,
    ),
}
