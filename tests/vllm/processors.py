"""
Processors: what transformers' own make of picture files. Run in vLLM's environment: processors.py JOBS.json.

Files are read by vLLM's own reader of requests. Prints a JSON list, an answer a job.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"

import json
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import torch
from torchvision.transforms.v2.functional import InterpolationMode, resize
from transformers import AutoImageProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from vllm.multimodal.media.image import ImageMediaIO

CLASSES = {"torchvision": Qwen2VLImageProcessor, "pil": Qwen2VLImageProcessorPil}

# The numbers of the published preprocessor_config.json files.
HALF = [0.5, 0.5, 0.5]
NUMBERS: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {"patch_size": 14},
    "qwen3_vl": {"patch_size": 16, "image_mean": HALF, "image_std": HALF},
}


@cache
def read(file: str) -> Any:
    """In RGB and upright, as vLLM hands it to the processor."""
    return ImageMediaIO().load_bytes(Path(file).read_bytes()).media


@cache
def processor(backend: str, family: str) -> Any:
    return CLASSES[backend](**NUMBERS[family])


def processed(file: str, backend: str, family: str, limits: list[int]) -> Any:
    low, high = limits
    size = {"shortest_edge": low, "longest_edge": high}
    return processor(backend, family)(images=[read(file)], size=size, return_tensors="pt")


def differ(original: str, ours: str, backend: str, family: str, limits: list[int]) -> dict[str, Any]:
    """By how much the values for the two files differ, in levels of 255, and how many in a thousand do."""
    theirs = processed(original, backend, family, limits)
    mine = processed(ours, backend, family, limits)
    if not torch.equal(theirs["image_grid_thw"], mine["image_grid_thw"]):
        return {"grids": [theirs["image_grid_thw"].tolist(), mine["image_grid_thw"].tolist()]}
    differences = levels(theirs["pixel_values"] - mine["pixel_values"], backend, family)
    share = (differences != 0).double().mean().item()
    return {"most": differences.max().item(), "per_mille": 1_000 * share, "values": differences.numel()}


def levels(difference: Any, backend: str, family: str) -> Any:
    """A patch holds all of its red, then all of its green and blue."""
    std = torch.tensor(processor(backend, family).image_std)
    return (difference.unflatten(1, (3, -1)) * std[:, None] * 255).abs()


def grid(file: str, family: str, limits: list[int]) -> dict[str, Any]:
    """The size that the processor works on, and the tokens that the model counts."""
    made = processed(file, "torchvision", family, limits)["image_grid_thw"]
    patch, (_, rows, columns) = NUMBERS[family]["patch_size"], made[0].tolist()
    return {"size": [columns * patch, rows * patch], "tokens": rows * columns // 4, "read": list(read(file).size)}


def resized(size: list[int]) -> dict[str, Any]:
    """The digest of `noise(301, 217)` in another size, as the tests of the engine have it."""
    values = torch.frombuffer(bytearray(Random(7).randbytes(301 * 217 * 3)), dtype=torch.uint8).view(217, 301, 3)
    made = resize(values.permute(2, 0, 1), size[::-1], InterpolationMode.BICUBIC, antialias=True)
    return {"digest": sha256(made.permute(1, 2, 0).contiguous().numpy().tobytes()).hexdigest()[:16]}


def chosen(checkpoint: str) -> dict[str, Any]:
    """The class that vLLM gets for a checkpoint, which it asks for in this way."""
    return {"class": type(AutoImageProcessor.from_pretrained(checkpoint)).__name__}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"differ": differ, "grid": grid, "resized": resized, "chosen": chosen}


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    answers = [JOBS[job.pop("job")](**job) for job in jobs]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
