"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vlm_edge.settings import Settings

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings file (TOML). Default: $VLM_EDGE_CONFIG, else none.")
]
Profile = Annotated[str, typer.Option("--profile", "-p", help="Profile; `vlm-edge profiles` lists them.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Model whose grid and token count apply.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def console() -> Console:
    """For tables: as wide as the terminal, or wide enough for whole names where there is none."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=200)


def load(config: Path | None) -> Settings:
    return Settings.load(config) if config else Settings.from_env()
