"""The commands put together, and how an error ends them: one line, no traceback."""

import sys
from typing import NoReturn

import typer

import vlm_edge
from vlm_edge.cli import check, demo, families, frames, prepare, profiles, resize, serve, tokens
from vlm_edge.errors import ConfigError, EdgeError, MissingExtra, UnknownModel, UnknownPath, UnknownProfile

app = typer.Typer(
    name="vlm-edge",
    help="The edge of a vision-language service: pictures resized, limited and counted before the model sees them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (demo, serve, prepare, resize, frames, tokens, families, profiles, check):
    app.command(name=command.__name__.rpartition(".")[2])(command.command)

USAGE_ERRORS = (ConfigError, MissingExtra, UnknownModel, UnknownPath, UnknownProfile)


@app.callback(invoke_without_command=True)
def version(
    show: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if show:
        typer.echo(vlm_edge.__version__)
        raise typer.Exit


def run() -> None:
    """Exit codes: 0 done; 1 some items failed, or the input was refused; 2 usage or configuration."""
    try:
        app()
    except EdgeError as error:
        _end(str(error), 2 if isinstance(error, USAGE_ERRORS) else 1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; Python would complain while it closes stdout
        sys.exit(1)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror}", 2)


def _end(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
