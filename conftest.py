"""What all tests share: matplotlib without a window, no figure left open, signals that arrive, random numbers."""

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
