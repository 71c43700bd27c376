"""
Families: Hugging Face `model_type` → rule with its numbers.

The numbers are those of the published checkpoints' preprocessor_config.json (not the class defaults of transformers).
"""

import msgspec

from vlm_edge.tokens.canvases import BrokenCanvas, UnpaddedCanvas
from vlm_edge.tokens.crops import CoveringTiles, Windows
from vlm_edge.tokens.fixed import Fixed, PannedSquare, Square
from vlm_edge.tokens.grids import BoundedGrid, FilledGrid, LenientGrid, LiftedGrid, MergedGrid, PaddedGrid, TimedGrid
from vlm_edge.tokens.hosted import PricedArea, PricedCells, PricedCrops, PricedLevels, PricedPatches, PricedTiles
from vlm_edge.tokens.padded import FilledCanvas, MarkedCanvas, MaskedCanvas, OverlappedCanvas
from vlm_edge.tokens.rows import RowGrid
from vlm_edge.tokens.rule import Rule
from vlm_edge.tokens.slices import FittedSlices, PanAndScan, RowTiles, Slices
from vlm_edge.tokens.split import SplitGrid
from vlm_edge.tokens.tiles import CoverTiles, FitTiles, LocalTiles, RatioTiles


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
QWEN3_VL = TimedGrid(
    patch=16,
    merge=2,
    min_pixels=65_536,
    max_pixels=16_777_216,
    video_min_pixels=4_096,
    video_max_pixels=25_165_824,
)
GLM_4V = TimedGrid(
    patch=14,
    merge=2,
    min_pixels=12_544,
    max_pixels=9_633_792,
    video_min_pixels=12_544,
    video_max_pixels=47_040_000,
    picture_frames=2,
    clip_tokens=2,
    pair_tokens=5,  # `.0 seconds` without its digits is 3, the tags of a picture are 2
    time="start",
)
GLM_4_1V = msgspec.structs.replace(GLM_4V, pair_tokens=2)  # digits alone
PIXTRAL = RowGrid(patch=16, max_side=1_024)
MISTRAL_3 = RowGrid(patch=14, merge=2, max_side=1_540)
KIMI_VL = PaddedGrid(patch=14, merge=2, max_patches=4_096, refuses_long=True)
INTERNVL = RatioTiles(tile=448, patch=14, downsample=0.5, frame_break_tokens=0)
LLAVA_NEXT_PINPOINTS = ((336, 672), (672, 336), (672, 672), (1_008, 336), (336, 1_008))
LLAVA_ONEVISION_PINPOINTS = tuple((384 * rows, 384 * columns) for rows in range(1, 7) for columns in range(1, 7))
DEEPSEEK_VL2_TILES = (
    *((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (4, 1), (2, 2), (1, 5), (5, 1), (1, 6), (6, 1)),
    *((2, 3), (3, 2), (1, 7), (7, 1), (1, 8), (8, 1), (2, 4), (4, 2), (1, 9), (9, 1), (3, 3)),
)
DEEPSEEK_VL2_CANVASES = tuple((384 * columns, 384 * rows) for columns, rows in DEEPSEEK_VL2_TILES)

FAMILIES: dict[str, Family] = {
    # Grids
    "qwen2_vl": Family(
        rule=QWEN2_VL, model="Qwen/Qwen2-VL-7B-Instruct", source="transformers: qwen2_vl/image_processing_qwen2_vl.py"
    ),
    "qwen2_5_vl": Family(
        rule=QWEN2_VL, model="Qwen/Qwen2.5-VL-7B-Instruct", source="transformers: qwen2_vl/image_processing_qwen2_vl.py"
    ),
    "qwen3_vl": Family(
        rule=QWEN3_VL, model="Qwen/Qwen3-VL-8B-Instruct", source="transformers: qwen3_vl/processing_qwen3_vl.py"
    ),
    "qwen3_5": Family(rule=QWEN3_VL, model="Qwen/Qwen3.5-4B", source="transformers: qwen3_vl/processing_qwen3_vl.py"),
    "dots_ocr": Family(
        rule=MergedGrid(patch=14, merge=2, min_pixels=3_136, max_pixels=11_289_600),
        model="rednote-hilab/dots.ocr",
        source="transformers: qwen2_vl/image_processing_qwen2_vl.py",
    ),
    "llava_onevision1_5": Family(
        rule=QWEN2_VL,
        model="lmms-lab/LLaVA-OneVision-1.5-8B-Instruct",
        source="transformers: qwen2_vl/image_processing_qwen2_vl.py (not verified)",
        exact=False,
    ),
    "glm4_1v": Family(
        rule=GLM_4_1V, model="zai-org/GLM-4.1V-9B-Thinking", source="transformers: glm4v/image_processing_glm4v.py"
    ),
    "glm4_6v": Family(
        rule=GLM_4V, model="zai-org/GLM-4.6V-Flash", source="transformers: glm46v/image_processing_glm46v.py"
    ),
    "glm_ocr": Family(rule=GLM_4V, model="zai-org/GLM-OCR", source="transformers: glm46v/image_processing_glm46v.py"),
    "ernie4_5_vl": Family(
        rule=BoundedGrid(patch=14, merge=2, min_pixels=3_136, max_pixels=4_842_768, rounded_cells=1, shrunk_cells=0),
        model="baidu/ERNIE-4.5-VL-28B-A3B-PT",
        source="vLLM: model_executor/models/ernie45_vl.py",
    ),
    "paddleocr_vl": Family(
        rule=LiftedGrid(patch=14, merge=2, min_pixels=147_384, max_pixels=2_822_400),
        model="PaddlePaddle/PaddleOCR-VL",
        source="transformers: paddleocr_vl/image_processing_paddleocr_vl.py",
    ),
    "keye_vl": Family(
        rule=LiftedGrid(patch=14, merge=2, min_pixels=3_136, max_pixels=1_003_520, shrunk_cells=0),
        model="Kwai-Keye/Keye-VL-8B-Preview",
        source="vLLM: model_executor/models/keye.py",
    ),
    "hunyuan_ocr": Family(
        rule=MergedGrid(
            patch=16,
            merge=2,
            min_pixels=262_144,
            max_pixels=4_194_304,
            row_tokens=1,
            tag_tokens=2,
            videos=False,
        ),
        model="tencent/HunyuanOCR",
        source="transformers: hunyuan_vl/processing_hunyuan_vl.py",
    ),
    "ovis2_5": Family(
        rule=LenientGrid(
            patch=16,
            merge=2,
            temporal_patch=1,
            min_pixels=200_704,
            max_pixels=3_211_264,
            shrunk_cells=0,
            tag_tokens=2,
            template_tokens=0,
        ),
        model="AIDC-AI/Ovis2.5-9B",
        source="vLLM: transformers_utils/processors/ovis2_5.py",
    ),
    "kimi_vl": Family(
        rule=KIMI_VL, model="moonshotai/Kimi-VL-A3B-Instruct", source="vLLM: model_executor/models/kimi_vl.py"
    ),
    "kimi_k2_5": Family(
        rule=PaddedGrid(patch=14, merge=2, max_patches=16_384),
        model="moonshotai/Kimi-K2.5",
        source="transformers: kimi_k25/image_processing_kimi_k25.py",
    ),
    "gemma4": Family(
        rule=FilledGrid(patch=16, pool=3, max_tokens=280),
        model="google/gemma-4-E4B-it",
        source="transformers: gemma4/image_processing_gemma4.py",
    ),
    "lfm2_vl": Family(
        rule=SplitGrid(patch=16, merge=2, min_tokens=64, max_tokens=256, tile=512, min_tiles=2, max_tiles=10),
        model="LiquidAI/LFM2-VL-1.6B",
        source="transformers: lfm2_vl/image_processing_lfm2_vl.py",
    ),
    # Rows
    "pixtral": Family(
        rule=PIXTRAL, model="mistral-community/pixtral-12b", source="transformers: pixtral/image_processing_pixtral.py"
    ),
    "pixtral_mistral_format": Family(
        rule=msgspec.structs.replace(PIXTRAL, rounds=True),
        model="mistralai/Pixtral-12B-2409",
        source="mistral-common: tokens/tokenizers/image.py",
    ),
    "mistral3": Family(
        rule=MISTRAL_3,
        model="mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        source="transformers: pixtral/image_processing_pixtral.py",
    ),
    "mistral3_mistral_format": Family(
        rule=msgspec.structs.replace(MISTRAL_3, rounds=True),
        model="mistralai/Mistral-Small-3.2-24B-Instruct-2506 (--tokenizer-mode mistral)",
        source="mistral-common: tokens/tokenizers/image.py",
    ),
    "lighton_ocr": Family(
        rule=RowGrid(patch=14, merge=2, max_side=1_540, row_tokens=0),
        model="lightonai/LightOnOCR-2-1B",
        source="transformers: lighton_ocr/processing_lighton_ocr.py",
    ),
    # Fixed
    "llava_1_5": Family(
        rule=Square(side=336, extra_tokens=1, strategy="default"),
        model="llava-hf/llava-1.5-7b-hf",
        source="transformers: llava/processing_llava.py",
    ),
    "gemma3": Family(
        rule=PannedSquare(),
        model="google/gemma-3-4b-it",
        source="transformers: gemma3/processing_gemma3.py",
    ),
    "gemma3n": Family(
        rule=Square(side=768, tokens=256, tag_tokens=4),
        model="google/gemma-3n-E4B-it",
        source="transformers: gemma3n/processing_gemma3n.py",
    ),
    "paligemma": Family(
        rule=Square(side=448),
        model="google/paligemma2-3b-pt-448",
        source="transformers: paligemma/processing_paligemma.py",
    ),
    "mllama": Family(
        rule=Fixed(tokens=1),
        model="meta-llama/Llama-3.2-11B-Vision-Instruct",
        source="transformers: mllama/processing_mllama.py",
    ),
    "glm_4v": Family(
        rule=Square(side=1_120, merge=2, tag_tokens=2, max_images=1),
        model="zai-org/glm-4v-9b",
        source="vLLM: model_executor/models/glm4v.py",
    ),
    # Hosted
    "openai_tile": Family(
        rule=PricedTiles(base_tokens=85, tile_tokens=170),
        model="gpt-4o",
        source="OpenAI: guide Images and vision",
        exact=False,
    ),
    "openai_patch": Family(
        rule=PricedPatches(multiplier=1.62), model="gpt-5-mini", source="OpenAI: guide Images and vision", exact=False
    ),
    "claude": Family(
        rule=PricedCells(max_long_edge=2_576, max_tokens=4_784),
        model="claude-opus-4-7",
        source="Anthropic: guide Vision",
        exact=False,
    ),
    "claude_legacy_estimate": Family(
        rule=PricedArea(), model="claude-3-5-sonnet", source="Anthropic: guide Vision, superseded", exact=False
    ),
    "gemini_2": Family(
        rule=PricedCrops(), model="gemini-2.5-flash", source="Google: guide Image understanding", exact=False
    ),
    "gemini_3": Family(rule=PricedLevels(), model="gemini-3-pro", source="Google: guide Media resolution", exact=False),
    # Tiles and canvases
    "internvl": Family(
        rule=msgspec.structs.replace(INTERNVL, frame_break_tokens=1),
        model="OpenGVLab/InternVL3-8B-hf",
        source="transformers: internvl/processing_internvl.py",
    ),
    "internvl_chat": Family(
        rule=INTERNVL, model="OpenGVLab/InternVL3_5-8B", source="vLLM: transformers_utils/processors/internvl.py"
    ),
    "nemotron_nano_v2_vl": Family(
        rule=RatioTiles(tile=512, patch=16, downsample=0.5),
        model="nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16",
        source="vLLM: transformers_utils/processors/nano_nemotron_vl.py (not run)",
        exact=False,
    ),
    "aya_vision": Family(
        rule=RatioTiles(tile=364, patch=14, downsample=2, tile_tags=1),
        model="CohereLabs/aya-vision-8b",
        source="transformers: aya_vision/processing_aya_vision.py",
    ),
    "nemotron_nano_vl": Family(
        rule=CoverTiles(tile=512, patch=16, downsample=0.5),
        model="nvidia/Llama-3.1-Nemotron-Nano-VL-8B-V1",
        source="vLLM: transformers_utils/processors/nemotron_vl.py",
    ),
    "cohere2_vision": Family(
        rule=FitTiles(tile=512, patch=16, downsample=2, tile_tags=1),
        model="CohereLabs/command-a-vision-07-2025",
        source="transformers: cohere2_vision/image_processing_cohere2_vision.py",
    ),
    "deepseek_ocr": Family(
        rule=LocalTiles(base=1_024, tile=640, patch=16, downsample=4, min_tiles=2, max_tiles=6, row_breaks=True),
        model="deepseek-ai/DeepSeek-OCR",
        source="vLLM: model_executor/models/deepseek_ocr.py",
    ),
    "deepseek_ocr2": Family(
        rule=LocalTiles(base=1_024, tile=768, patch=16, downsample=4, min_tiles=2, max_tiles=6),
        model="deepseek-ai/DeepSeek-OCR-2",
        source="transformers: deepseek_ocr2/processing_deepseek_ocr2.py",
    ),
    "llava_next": Family(
        rule=UnpaddedCanvas(tile=336, patch=14, pinpoints=LLAVA_NEXT_PINPOINTS, extra_tokens=1, strategy="default"),
        model="llava-hf/llava-v1.6-mistral-7b-hf",
        source="transformers: llava_next/processing_llava_next.py",
    ),
    "llava_onevision": Family(
        rule=UnpaddedCanvas(
            tile=384, patch=14, pinpoints=LLAVA_ONEVISION_PINPOINTS, anyres="anyres_max_9", frame_pool=2
        ),
        model="llava-hf/llava-onevision-qwen2-7b-ov-hf",
        source="transformers: llava_onevision/processing_llava_onevision.py",
    ),
    "deepseek_vl2": Family(
        rule=BrokenCanvas(tile=384, patch=14, downsample=2, canvases=DEEPSEEK_VL2_CANVASES),
        model="deepseek-ai/deepseek-vl2-small",
        source="vLLM: model_executor/models/deepseek_vl2.py",
    ),
    "llama4": Family(
        rule=MarkedCanvas(tile=336, patch=14, downsample=0.5, max_tiles=16),
        model="meta-llama/Llama-4-Scout-17B-16E-Instruct",
        source="transformers: llama4/image_processing_llama4.py",
    ),
    "phi4_multimodal": Family(
        rule=MaskedCanvas(tile=448, patch=14, merge=2, max_tiles=36),
        model="microsoft/Phi-4-multimodal-instruct",
        source="transformers: phi4_multimodal/image_processing_phi4_multimodal.py",
    ),
    "phi3_5_vision": Family(
        rule=FilledCanvas(tile=336, tile_tokens=144, max_tiles=4),
        model="microsoft/Phi-3.5-vision-instruct",
        source="the checkpoint: processing_phi3_v.py",
    ),
    "molmo": Family(
        rule=OverlappedCanvas(tile=336, patch=14, max_tiles=12, base_tokens=(12, 12), split_pool=True),
        model="allenai/Molmo-7B-D-0924",
        source="vLLM: model_executor/models/molmo.py",
    ),
    "molmo2": Family(
        rule=OverlappedCanvas(tile=378, patch=14, max_tiles=8),
        model="allenai/Molmo2-8B",
        source="vLLM: model_executor/models/molmo2.py",
    ),
    "minicpmv2_6": Family(
        rule=Slices(side=448, max_slices=9),
        model="openbmb/MiniCPM-V-2_6",
        source="the checkpoint: image_processing_minicpmv.py",
    ),
    "minicpmv4_6": Family(
        rule=FittedSlices(side=448, max_slices=9, patch=14),
        model="openbmb/MiniCPM-V-4.6",
        source="transformers: minicpmv4_6/image_processing_minicpmv4_6.py",
    ),
    "idefics3": Family(
        rule=RowTiles(max_side=1_456, tile=364, tile_tokens=169, tags="plain text"),
        model="HuggingFaceM4/Idefics3-8B-Llama3",
        source="transformers: idefics3/processing_idefics3.py",
    ),
    "smolvlm": Family(
        rule=RowTiles(max_side=1_536, tile=384, tile_tokens=81),
        model="HuggingFaceTB/SmolVLM-Instruct",
        source="transformers: smolvlm/processing_smolvlm.py",
    ),
    "ovis2": Family(
        rule=CoveringTiles(tile=448, tile_tokens=256, max_tiles=9),
        model="thisisiron/Ovis2-4B-hf",
        source="transformers: ovis2/image_processing_ovis2.py",
    ),
    "step3_vl": Family(
        rule=Windows(whole=728, window=504, whole_tokens=169, window_tokens=81),
        model="stepfun-ai/step3",
        source="vLLM: transformers_utils/processors/step3_vl.py",
    ),
    "gemma3_pan_and_scan": Family(
        rule=PanAndScan(),
        model="google/gemma-3-4b-it (do_pan_and_scan=true)",
        source="transformers: gemma3/processing_gemma3.py (its words as another tokenizer writes them)",
        exact=False,
    ),
}
