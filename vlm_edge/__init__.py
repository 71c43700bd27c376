"""
vlm_edge: the edge of a vision-language service.

Pictures in chat requests are planned on their headers and worked on in pixels before the model server sees them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vlm_edge.edge import Edge
    from vlm_edge.errors import EdgeError
    from vlm_edge.geometry import Size
    from vlm_edge.media.profile import Profile
    from vlm_edge.middleware import EdgeMiddleware
    from vlm_edge.settings import Settings

__version__ = "0.1.0"

__all__ = ["Edge", "EdgeError", "EdgeMiddleware", "Profile", "Settings", "Size"]

_HOMES = {
    "Edge": "edge",
    "EdgeError": "errors",
    "EdgeMiddleware": "middleware",
    "Profile": "media.profile",
    "Settings": "settings",
    "Size": "geometry",
    "tokens": "tokens",
}


def __getattr__(name: str) -> Any:
    """Public names are imported at first use, so that `import vlm_edge` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES[name]}")
    return module if name == "tokens" else getattr(module, name)
