"""
Families: Hugging Face `model_type` → rule with its numbers.

The numbers are those of the published checkpoints' preprocessor_config.json (not the class defaults of transformers).
"""

import msgspec

from vlm_edge.tokens.grids import MergedGrid, TimedGrid
from vlm_edge.tokens.rule import Rule


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Models with one preprocessing.

    model: a checkpoint, or hosted model, that has these numbers. source: where the rule stands, and was checked.
    exact: False where nobody but its maker could run it, so counts are estimates.
    """

    rule: Rule
    model: str
    source: str
    exact: bool = True


QWEN2_VL = MergedGrid(patch=14, merge=2, min_pixels=3_136, max_pixels=12_845_056)

FAMILIES: dict[str, Family] = {
    "qwen2_vl": Family(
        rule=QWEN2_VL, model="Qwen/Qwen2-VL-7B-Instruct", source="transformers: qwen2_vl/image_processing_qwen2_vl.py"
    ),
    "qwen2_5_vl": Family(
        rule=QWEN2_VL, model="Qwen/Qwen2.5-VL-7B-Instruct", source="transformers: qwen2_vl/image_processing_qwen2_vl.py"
    ),
    "qwen3_vl": Family(
        rule=TimedGrid(
            patch=16,
            merge=2,
            min_pixels=65_536,
            max_pixels=16_777_216,
            video_min_pixels=4_096,
            video_max_pixels=25_165_824,
        ),
        model="Qwen/Qwen3-VL-8B-Instruct",
        source="transformers: qwen3_vl/processing_qwen3_vl.py",
    ),
}
