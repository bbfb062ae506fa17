"""Triton kernels: a pass over the rows that reads them once, and sums without atomics.

Every kernel cuts its rows into a fixed number of ranges, one program each.  A program keeps its sums on the chip and
writes them to a slot of its own, and the slots are added in double precision in a fixed order, so the same input
gives the same bits.

Products are of float16 numbers in two parts, z 2^e = hi + lo, which have 22 bits together.  Tensor cores truncate where
they accumulate, so the product of each block starts from zero and is added in registers: `total += product * one`, with
a `one` that the compiler does not know, since it would otherwise merge the addition into the product.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _noise(m, KIND: tl.constexpr, IS_FAST: tl.constexpr):
    """The loss at each margin, minus its derivative, and its second derivative; nothing overflows on either side."""
    if KIND == 0:  # -log cdf = log(1 + e^-m), with the logarithm of 1 + e from a polynomial (mean error 3e-9)
        e = tl.exp2(-1.4426950408889634 * tl.abs(m))
        p = tl.where(m > 0, e, 1.0) / (1.0 + e)
        if IS_FAST:
            return 0.6931471805599453 * tl.log2(1.0 + e) + tl.maximum(-m, 0.0), p, p * (1.0 - p)
        r = -0.0031760570127516985
        r = r * e + 0.019542528316378593
        r = r * e - 0.05637361481785774
        r = r * e + 0.10543623566627502
        r = r * e - 0.1526966691017151
        r = r * e + 0.1966327428817749
        r = r * e - 0.24951615929603577
        r = r * e + 0.33329710364341736
        r = r * e - 0.49999892711639404
        r = r * e + 1.0
        return r * e + tl.maximum(-m, 0.0), p, p * (1.0 - p)
    if KIND == 1:
        x = -m * 0.7071067811865476
        scaled = libdevice.erfcx(tl.maximum(x, 0.0))
        above = -libdevice.log1p(-0.5 * libdevice.erfc(tl.maximum(-x, 0.0)))
        below = x * x - libdevice.log(0.5 * scaled)
        p = 0.7978845608028654 / libdevice.erfcx(tl.maximum(x, -8.0))
        return tl.where(m > 0, above, below), p, tl.maximum(p * (p + m), 0.0)
    if KIND == 2:
        e = 0.5 * libdevice.exp(-tl.minimum(tl.abs(m), 700.0))  # which is wrong beyond 2^31
        p = e / (1.0 - e)
        loss = tl.where(m > 0, -libdevice.log1p(-e), 0.6931471805599453 - m)
        return loss, tl.where(m > 0, p, 1.0), tl.where(m > 0, p * (1.0 + p), 0.0)
    # The cdf is 2 / pi atan(e^u) with u = pi m / 2, and atan(e^u) = pi / 2 - atan(e^-u)
    u = 1.5707963267948966 * m
    e = libdevice.exp(-tl.minimum(tl.abs(u), 700.0))
    arc = libdevice.atan(e)
    ratio = tl.where(e > 1e-30, arc / e, 1.0)
    above = -libdevice.log1p(-0.6366197723675814 * arc)
    below = 0.4515827052894548 - u - libdevice.log(ratio)
    p = tl.where(m > 0, e / (1.0 - 0.6366197723675814 * arc), 1.5707963267948966 / ratio) / (1.0 + e * e)
    return tl.where(m > 0, above, below), p, tl.maximum(p * (p + 1.5707963267948966 * libdevice.tanh(u)), 0.0)


@triton.jit
def _exact_noise(m, KIND: tl.constexpr):
    """The same in double precision."""
    if KIND == 0:
        e = libdevice.exp(-tl.minimum(tl.abs(m), 700.0))
        p = tl.where(m > 0, e, 1.0) / (1.0 + e)
        return libdevice.log1p(e) + tl.maximum(-m, 0.0), p, p * (1.0 - p)
    return _noise(m, KIND, False)


@triton.jit
def pass_kernel(
    HIGH,
    LOW,
    SCALES,
    SIGNS,
    WEIGHTS,
    POINT,
    threshold,
    threshold_rest,
    SUMS,
    TOTALS,
    n_rows,
    rows_of_slot,
    form_unit,
    form_rest,
    coefficient_unit,
    one,
    d: tl.constexpr,
    D: tl.constexpr,
    B: tl.constexpr,
    KIND: tl.constexpr,
    LEVEL: tl.constexpr,
    ARE_PLANES: tl.constexpr,
    WEIGHTED: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Loss, slope, curvature, least margin and gradient of one range of rows.

    The rows are float16 planes of their high and low parts (tensor descriptors), or d float32 numbers each (a pointer),
    which are scaled and split here.  The point is a symmetric M, and the gradient Z' diag(c) Z.  The kind CURVED has as
    derivative at the margin q - t times the weight of the row.  At level 0 only high parts count and the curvature is
    not summed, at level 1 low parts count in the forms z'Mz, at level 2 in the gradient too.  The rests are what single
    precision leaves of the threshold, and what products lose of the forms.
    """
    IS_CURVED: tl.constexpr = KIND == 4
    slot = tl.program_id(0)
    i = tl.arange(0, D)
    entries = i[:, None] * D + i[None, :]
    a = tl.load(POINT + entries)
    a_high = a.to(tl.float16)
    a_low = (a - a_high.to(tl.float32)).to(tl.float16)
    if not ARE_PLANES:
        scale = tl.load(SCALES + i, mask=i < d, other=0.0)
    first = slot.to(tl.int64) * rows_of_slot
    n = tl.maximum(tl.minimum(n_rows - first, rows_of_slot), 0).to(tl.int32)
    SIGNS += first
    WEIGHTS += first
    loss = tl.zeros((B,), tl.float64)
    slope = tl.zeros((B,), tl.float64)
    bend = tl.zeros((B,), tl.float64)
    least = tl.full((B,), float("inf"), tl.float32)
    total = tl.zeros((D, D), tl.float32)
    for start in tl.range(0, n, B, num_stages=STAGES):
        r = start + tl.arange(0, B)
        ok = r < n
        if ARE_PLANES:
            z_high = HIGH.load([(first + start).to(tl.int32), 0])
            if LEVEL > 0:
                z_low = LOW.load([(first + start).to(tl.int32), 0])
        else:
            z = tl.load(HIGH + (first + r)[:, None] * d + i[None, :], mask=ok[:, None] & (i[None, :] < d), other=0.0)
            z = z * scale[None, :]
            z_high = z.to(tl.float16)
            z_low = (z - z_high.to(tl.float32)).to(tl.float16)
        if LEVEL > 0:
            y = tl.dot(z_low, a_high)
            y = tl.dot(z_high, a_low, y)
            y = tl.dot(z_high, a_high, y)
        else:
            y = tl.dot(z_high, a_high)
        x = z_high.to(tl.float32)
        if LEVEL > 0:
            x += z_low.to(tl.float32)
        q = tl.sum(y * x, 1) * form_unit
        beyond = (q - threshold) + (q * form_rest - threshold_rest)
        if IS_CURVED:
            c = tl.load(WEIGHTS + r, mask=ok, other=0.0) * beyond
        else:
            s = tl.load(SIGNS + r, mask=ok, other=0).to(tl.float32)
            m = s * beyond
            f, p, h = _noise(m, KIND, LEVEL == 0)
            if WEIGHTED:
                w = tl.load(WEIGHTS + r, mask=ok, other=0.0)
                f = f * w
                p = p * w
                h = h * w
            loss += tl.where(ok, f, 0.0).to(tl.float64)
            least = tl.minimum(least, tl.where(ok, m, float("inf")))
            if LEVEL > 0:
                bend += tl.where(ok, h, 0.0).to(tl.float64)
            c = p * s
        slope += c.to(tl.float64)
        c = c * coefficient_unit
        x = x * c[:, None]
        x_high = x.to(tl.float16)
        product = tl.dot(tl.trans(z_high), x_high)
        if LEVEL > 1:
            product = tl.dot(tl.trans(z_low), x_high, product)
            product = tl.dot(tl.trans(z_high), (x - x_high.to(tl.float32)).to(tl.float16), product)
        total += product * one
    tl.store(SUMS + slot * 4, tl.sum(loss, 0))
    tl.store(SUMS + slot * 4 + 1, tl.sum(slope, 0))
    tl.store(SUMS + slot * 4 + 2, tl.sum(bend, 0))
    tl.store(SUMS + slot * 4 + 3, tl.min(least, 0).to(tl.float64))
    tl.store(TOTALS + slot.to(tl.int64) * D * D + entries, total)


@triton.jit
def terms_kernel(
    SQUARED,
    SIGNS,
    WEIGHTS,
    NUMBERS,
    SUMS,
    SLOPES,
    CURVATURES,
    n_rows,
    rows_of_slot,
    B: tl.constexpr,
    KIND: tl.constexpr,
    ORDER: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """The likelihood of one range of rows at known squared distances, in double precision: sums and derivatives.

    NUMBERS are the threshold and the weight that all rows have, which as arguments would be in single precision.
    """
    slot = tl.program_id(0)
    threshold = tl.load(NUMBERS)
    share = tl.load(NUMBERS + 1)
    first = slot.to(tl.int64) * rows_of_slot
    n = tl.maximum(tl.minimum(n_rows - first, rows_of_slot), 0)
    loss = tl.zeros((B,), tl.float64)
    slope = tl.zeros((B,), tl.float64)
    bend = tl.zeros((B,), tl.float64)
    least = tl.full((B,), float("inf"), tl.float64)
    for start in tl.range(0, n, B):
        r = first + start + tl.arange(0, B)
        ok = start + tl.arange(0, B) < n
        s = tl.load(SIGNS + r, mask=ok, other=0).to(tl.float64)
        m = s * (tl.load(SQUARED + r, mask=ok, other=0.0) - threshold)
        f, p, h = _exact_noise(m, KIND)
        w = tl.load(WEIGHTS + r, mask=ok, other=0.0) if WEIGHTED else tl.where(ok, share, 0.0)
        c = -w * s * p
        loss += w * f
        slope -= c
        least = tl.minimum(least, tl.where(ok, m, float("inf")))
        tl.store(SLOPES + r, c, mask=ok)
        if ORDER > 1:
            bend += w * h
            tl.store(CURVATURES + r, w * h, mask=ok)
    tl.store(SUMS + slot * 4, tl.sum(loss, 0))
    tl.store(SUMS + slot * 4 + 1, tl.sum(slope, 0))
    tl.store(SUMS + slot * 4 + 2, tl.sum(bend, 0))
    tl.store(SUMS + slot * 4 + 3, tl.min(least, 0))
