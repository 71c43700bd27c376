"""
Bicubic: the resize of the models' own processors, value for value (numpy, imported at first use).

They run on torchvision, whose kernel for eight bits came from Pillow-SIMD: weights of sixteen bits, width first. Those
of Pillow have more bits, so that one value in some hundreds differs by a level or two; and from release 13 on it begins
with the height where that saves work, so that many differ, by up to twenty. Sums of whole numbers in float64 are exact,
whatever their order.

Source: PyTorch, aten/src/ATen/native/cpu/UpSampleKernel.cpp, `HelperInterpCubic`.
"""

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from vlm_edge.geometry import Size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.uint8]
    Floats = NDArray[np.float64]

REACH = 2  # of the kernel, in pixels of the smaller picture
# Lines made at once: the fewer, the less of the matrix of weights is zeros.
BLOCK = 8
# Products of one call, so few that BLAS does not share them out among threads: the workers are the parallelism.
PRODUCTS = 1 << 18


class Weights(NamedTuple):
    """Line `i` is the sum of source lines from `starts[i]`, times `values[i]`, by two to the power of `precision`."""

    starts: "NDArray[np.int64]"
    values: "Floats"
    precision: int


def resized(stripes: "Iterable[Values]", size: Size) -> "Values":
    """Of a picture cut into stripes of rows, arrays of height x width x channels: first the width, then the height."""
    import numpy as np

    narrowed = [_resized_lines(stripe.swapaxes(0, 1), size.width).swapaxes(0, 1) for stripe in stripes]
    return _resized_lines(np.concatenate(narrowed), size.height)


def _resized_lines(lines: "Values", count: int) -> "Values":
    import numpy as np

    if len(lines) == count:
        return lines
    flat = np.ascontiguousarray(lines).reshape(len(lines), -1)
    made, weights = np.empty((count, flat.shape[1]), np.uint8), _weights(len(lines), count)
    scale = 2.0**-weights.precision
    for first in range(0, count, BLOCK):
        band, low, high = _band(weights, first, len(lines))
        source, width = flat[low:high], max(1, PRODUCTS // band.size)
        for start in range(0, flat.shape[1], width):
            sums = band @ source[:, start : start + width].astype(np.float64)
            made[first : first + BLOCK, start : start + width] = np.floor(sums * scale + 0.5).clip(0, 255)
    return made.reshape(count, *lines.shape[1:])


def _band(weights: Weights, first: int, lines: int) -> "tuple[Floats, int, int]":
    """The matrix that makes a block of lines of those from `low` to `high`."""
    import numpy as np

    starts, values = weights.starts[first : first + BLOCK], weights.values[first : first + BLOCK]
    low, reach = int(starts[0]), values.shape[1]
    high = int(starts[-1]) + reach
    band = np.zeros((len(starts), high - low))
    for row, (start, value) in enumerate(zip(starts - low, values, strict=True)):
        band[row, start : start + reach] = value
    return band[:, : lines - low], low, min(high, lines)


def _weights(before: int, after: int) -> Weights:
    import numpy as np

    scale = before / after
    support = REACH * max(scale, 1.0)
    centres = (np.arange(after) + 0.5) * scale
    starts = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    stops = np.minimum((centres + support + 0.5).astype(np.int64), before)
    places = starts[:, None] + np.arange(2 * ceil(support) + 1)
    values = _kernel((places - centres[:, None] + 0.5) * min(1 / scale, 1.0))
    values[places >= stops[:, None]] = 0
    values /= np.add.accumulate(values, axis=1)[:, -1:]  # in order, as a loop adds them up
    precision = _precision(float(values.max()))
    return Weights(starts, np.trunc(values * 2**precision + np.copysign(0.5, values)), precision)


def _kernel(x: "Floats") -> "Floats":
    """Cubic convolution with a = -0.5."""
    import numpy as np

    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1, near, np.where(x < REACH, far, 0))


def _precision(largest: float) -> int:
    """The most bits with which the largest weight fits into sixteen with its sign."""
    return next((bits for bits in range(22) if int(0.5 + largest * 2 ** (bits + 1)) >= 1 << 15), 22)
