"""What all tests share: no windows, no figure left open, signals that arrive, random numbers, files."""

import os
import signal
import sys

import numpy as np
import pytest

os.environ["MPLBACKEND"] = "Agg"

# A shell starts what runs in the background with SIGINT ignored; the processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng():
    """New for each test, so that no test depends on those before it."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="module")
def browser():
    """A browser for the tests of pages, where there is one."""
    from browser import Browser, find_browser

    program = find_browser()
    if program is None:
        message = "no chromium is installed: run make test-browser, which installs it."
        if os.environ.get("CLOSEFAR_NEEDS_BROWSER"):  # set by `make test-browser`
            pytest.fail(message)
        pytest.skip(message)
    with Browser(program) as found:
        yield found


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a file, and return its path."""

    def written(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written
