"""What stands in for a GPU in tests: the CPU, on which Triton's interpreter also runs the kernels.

The interpreter is that of a process whose variable TRITON_INTERPRET is 1, in which kernels can't be compiled.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from closefar import arrays
from closefar.rows import fused

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def count_tensors_as_on_gpu(monkeypatch):
    """Compute with tensors on the CPU as with those on a GPU: in large blocks, and few steps."""
    is_on_gpu = arrays.is_on_gpu
    for name, module in list(sys.modules.items()):
        if name.startswith("closefar.") and getattr(module, "is_on_gpu", None) is is_on_gpu:
            monkeypatch.setattr(module, "is_on_gpu", arrays.is_tensor)


def device_of_kernels(monkeypatch):
    """A device whose tensors have fused kernels: a card or, in the interpreter, the CPU.  Without one it skips."""
    torch = pytest.importorskip("torch", reason="needs torch: run pip install -e '.[test-torch]'")
    pytest.importorskip("triton", reason="the kernels are compiled by Triton: run pip install triton (Linux)")
    if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0):
        return "cuda"
    if not IS_INTERPRETED:
        pytest.skip("needs an H100 or a later NVIDIA GPU; test_kernels.py also runs this in Triton's interpreter")
    from closefar.rows import blocks, kernels

    count_tensors_as_on_gpu(monkeypatch)
    for module in (fused, blocks):
        monkeypatch.setattr(module, "why_not_here", lambda model: "")
    monkeypatch.setattr(fused, "free_for_torch", lambda device: 1 << 40)
    # A program takes about as long as a card needs for all of them, so these are few and large.
    for name, value in {"_TERM_SLOTS": 2, "_TERM_ROWS": 512, "_FORM_SLOTS": 2, "_FORM_ROWS": 512}.items():
        monkeypatch.setattr(fused, name, value)
    launch = fused.Launch(rows=512, warps=1, stages=1, slots=2)
    monkeypatch.setattr(fused.Launch, "of", classmethod(lambda cls, *given, **more: launch))
    monkeypatch.setattr(kernels, "libdevice", _libdevice())
    return "cpu"


def _libdevice():
    """The functions of NVIDIA's library that kernels call, which the interpreter does not have."""
    import triton.language as tl
    from scipy import special
    from triton.runtime.interpreter import TensorHandle

    def interpreted(function):
        def call(values):
            found = function(values.handle.data).astype(values.handle.data.dtype)
            return tl.tensor(TensorHandle(found, values.handle.dtype), values.type)

        return call

    functions = {name: getattr(np, name) for name in ("exp", "log", "log1p", "tanh")}
    functions |= {"atan": np.arctan, "erfc": special.erfc, "erfcx": special.erfcx}
    return SimpleNamespace(**{name: interpreted(function) for name, function in functions.items()})
