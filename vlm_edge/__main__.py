"""`vlm-edge` and `python -m vlm_edge`."""

import sys

from vlm_edge.errors import MissingExtra


def main() -> None:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print(f"error: {MissingExtra('the command line', 'cli')}", file=sys.stderr)
        sys.exit(2)
    from vlm_edge.cli.main import run

    run()


if __name__ == "__main__":
    main()
