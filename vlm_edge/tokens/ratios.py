"""Ratios: which grid of tiles has the shape nearest to a picture's."""

from functools import lru_cache

from vlm_edge.geometry import Size


def nearest_grid(size: Size, tile: int, min_tiles: int, max_tiles: int) -> tuple[int, int]:
    """Columns and rows. Of grids equally near, a later one where the picture covers over half of its area."""
    ratio, area = size.width / size.height, size.pixels
    best, least = (1, 1), float("inf")
    for columns, rows, shape in _grids(min_tiles, max_tiles):
        off = abs(ratio - shape)
        if off < least or (off == least and area > 0.5 * tile * tile * columns * rows):
            best, least = (columns, rows), off
    return best


@lru_cache(maxsize=64)
def _grids(min_tiles: int, max_tiles: int) -> tuple[tuple[int, int, float], ...]:
    """By area. Those of one area stand in the order that a set gives them, as the processors' do."""
    found = {
        (columns, rows)
        for most in range(min_tiles, max_tiles + 1)
        for columns in range(1, most + 1)
        for rows in range(1, most + 1)
        if min_tiles <= columns * rows <= max_tiles
    }
    by_area = sorted(found, key=lambda grid: grid[0] * grid[1])
    return tuple((columns, rows, columns / rows) for columns, rows in by_area)
