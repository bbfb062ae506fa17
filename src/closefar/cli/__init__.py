"""The command line: ``closefar --help``."""

# Little is imported here: an interrupt before `main` runs would end in a traceback.
import sys

__all__ = ["main"]

_NO_PACKAGE = 4  # as in session.EXIT_CODES, which can't be imported without the packages


def main() -> None:
    """Run the command line."""
    try:
        _stop_at_signals()
        _prepare_streams()
        from closefar.cli.app import app
        from closefar.cli.session import run

        sys.exit(run(app))
    except KeyboardInterrupt:
        _stop()
    except ImportError as error:
        needed = (error.name or str(error)).partition(".")[0]
        if sys.stderr is not None:
            print(f"closefar: the command line needs {needed}: run pip install 'closefar[cli]'.", file=sys.stderr)
        sys.exit(_NO_PACKAGE)


def _stop_at_signals() -> None:
    """End at once while nothing but imports is under way; a command that runs cleans up before it ends."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as for a job in the background
            signal.signal(number, _stop)


def _stop(*_: object) -> None:
    import os

    if sys.stderr is not None:
        os.write(2, b"closefar: interrupted; nothing was written.\n")
    os._exit(130)


def _prepare_streams() -> None:
    import io
    import os

    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # a file that is opened later must not become standard output where that is closed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal can't show stops nothing
