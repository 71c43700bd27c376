"""vlm-edge check: is a settings file right?"""

from pathlib import Path
from typing import Annotated

import typer

from vlm_edge.settings import Settings

File = Annotated[Path, typer.Argument(help="Settings file (TOML).")]


def command(config: File) -> None:
    """Read a settings file with its profiles; say what is wrong with it."""
    settings = Settings.load(config)
    names = ", ".join(sorted(settings.profiles))
    typer.echo(f"{config}: good; {len(settings.rules)} rules; profiles {names}; default {settings.default_profile}")
