"""The command line: ``closefar --help``."""

# Little is imported here: an interrupt before `main` runs would end in a traceback.
import sys

__all__ = ["main"]

_NO_PACKAGE = 4  # as in session.EXIT_CODES, which can't be imported without the packages


def main() -> None:
    """Run the command line."""
    try:
        _prepare_streams()
        from closefar.cli.app import app
        from closefar.cli.session import run

        sys.exit(run(app))
    except KeyboardInterrupt:  # while nothing but imports is under way
        print("closefar: interrupted; nothing was written.", file=sys.stderr)
        sys.exit(130)
    except ImportError as error:
        needed = (error.name or str(error)).partition(".")[0]
        print(f"closefar: the command line needs {needed}: run pip install 'closefar[cli]'.", file=sys.stderr)
        sys.exit(_NO_PACKAGE)


def _prepare_streams() -> None:
    import io
    import os

    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # a file that is opened later must not become standard output where that is closed
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal can't show stops nothing
