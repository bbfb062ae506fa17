"""The command line: ``closefar --help``."""

from __future__ import annotations

import io
import sys

__all__ = ["main"]

_NO_PACKAGE = 4  # as in session.EXIT_CODES, which can't be imported without the package


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal can't show stops nothing
    try:
        import rich  # noqa: F401  # what a command shows its progress with

        from closefar.cli.app import app

        app()
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(f"closefar: the command line needs {error.name}: run pip install 'closefar[cli]'.", file=sys.stderr)
        sys.exit(_NO_PACKAGE)
    except KeyboardInterrupt:
        print("closefar: interrupted; nothing was written.", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        print(f"closefar: can't write to the screen: {error.strerror}.", file=sys.stderr)
        sys.exit(3)
