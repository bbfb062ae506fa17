"""What all tests and doctests share: matplotlib without a window, no figure left open, and signals that arrive."""

import os
import signal
import sys

import pytest

os.environ["MPLBACKEND"] = "Agg"

# A shell starts what runs in the background with SIGINT ignored; the processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
