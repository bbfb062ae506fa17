"""The command line: ``closefar --help``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        import rich  # noqa: F401  # what a command shows its progress with

        from closefar.cli.app import app
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"closefar: the command line needs {error.name}: run pip install 'closefar[cli]'.")
    app()
