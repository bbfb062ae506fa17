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
def split_kernel(
    ROWS, HIGH, LOW, LARGEST, unit, n, along, across, width, d: tl.constexpr, D: tl.constexpr, B: tl.constexpr
):
    """Two float16 parts of rows times a unit, and the largest entry of each block of rows."""
    row, i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B), tl.arange(0, D)
    is_inside = (row < n)[:, None] & (i < d)[None, :]
    z = tl.load(ROWS + row[:, None] * along + i[None, :] * across, mask=is_inside, other=0.0).to(tl.float32) * unit
    high, place = z.to(tl.float16), row[:, None] * width + i[None, :]
    tl.store(HIGH + place, high, mask=is_inside)
    tl.store(LOW + place, (z - high.to(tl.float32)).to(tl.float16), mask=is_inside)
    tl.store(LARGEST + tl.program_id(0), tl.max(tl.abs(z)))


@triton.jit
def forms_kernel(
    ROWS,
    POINT,
    FORMS,
    n,
    rows_of_slot,
    d: tl.constexpr,
    D: tl.constexpr,
    K: tl.constexpr,
    B: tl.constexpr,
    IS_FACTOR: tl.constexpr,
):
    """Forms z'Mz of rows in single precision, or their squared lengths |A'z|^2, in double precision."""
    i, k, first = tl.arange(0, D), tl.arange(0, K), tl.program_id(0).to(tl.int64) * rows_of_slot
    point = tl.load(POINT + i[:, None] * K + k[None, :])
    for start in range(0, rows_of_slot, B):
        row = first + start + tl.arange(0, B)
        place, is_inside = row[:, None] * d + i[None, :], (row < n)[:, None] & (i < d)[None, :]
        z = tl.load(ROWS + place, mask=is_inside, other=0.0).to(tl.float64)
        y = tl.dot(z, point, out_dtype=tl.float64)
        tl.store(FORMS + row, tl.sum(y * y if IS_FACTOR else y * z, 1), mask=row < n)


@triton.jit
def _stored(ROWS, row, leg, n, i, scale, d: tl.constexpr, N_LEGS: tl.constexpr):
    """A block of rows, or of one leg of each, that are stored in single precision, scaled."""
    place = (row * N_LEGS + leg)[:, None] * d + i[None, :]
    return tl.load(ROWS + place, mask=(row < n)[:, None] & (i[None, :] < d), other=0.0) * scale[None, :]


@triton.jit
def _parts(z):
    """The high and the low float16 part."""
    high = z.to(tl.float16)
    return high, (z - high.to(tl.float32)).to(tl.float16)


@triton.jit
def _whole(high, low, LEVEL: tl.constexpr):
    """The rows that both parts are of; at the lowest level the high part alone."""
    return high.to(tl.float32) if LEVEL == 0 else high.to(tl.float32) + low.to(tl.float32)


@triton.jit
def _forms(high, low, x, a_high, a_low, LEVEL: tl.constexpr):
    """The forms z'Mz of rows."""
    if LEVEL > 0:
        y = tl.dot(low, a_high)
        y = tl.dot(high, a_low, y)
        y = tl.dot(high, a_high, y)
    else:
        y = tl.dot(high, a_high)
    return tl.sum(y * x, 1)


@triton.jit
def _outer(high, low, x, c, LEVEL: tl.constexpr):
    """The sum of c z z' over rows."""
    x = x * c[:, None]
    x_high = x.to(tl.float16)
    product = tl.dot(tl.trans(high), x_high)
    if LEVEL > 1:
        product = tl.dot(tl.trans(low), x_high, product)
        product = tl.dot(tl.trans(high), (x - x_high.to(tl.float32)).to(tl.float16), product)
    return product


@triton.jit
def pass_kernel(
    HIGH,
    LOW,
    SCALES,
    CODES,
    WEIGHTS,
    POINT,
    ENDS,
    threshold,
    threshold_rest,
    SUMS,
    TOTALS,
    FORMS,
    n_rows,
    rows_of_slot,
    form_unit,
    form_rest,
    coefficient_unit,
    one,
    d: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    B: tl.constexpr,
    KIND: tl.constexpr,
    LEVEL: tl.constexpr,
    ARE_PLANES: tl.constexpr,
    WEIGHTED: tl.constexpr,
    N_CODES: tl.constexpr,
    N_LEGS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Loss, slope, curvature, least margin and gradient of one range of rows.

    The rows are float16 planes of their high and low parts (tensor descriptors), or d float32 numbers each (a pointer),
    which are scaled and split here.  The point is a symmetric M, and the gradient Z' diag(c) Z.  At level 0 only high
    parts count and the curvature is not summed, at level 1 low parts count in the forms z'Mz, at level 2 in the
    gradient too.  The rests are what single precision leaves of the threshold, and what products lose of the forms.

    The form f'Mf - n'Mn of a comparison is u'Mv, with u = f - n and v = f + n, and its gradient is u v', symmetrised.
    So it takes the products of one row: planes have u and v side by side, and single precision near and far in turn.
    With several codes, the answers are intervals between ENDS, the lower ones first, of logistic noise without the part
    of the width, and the slopes in both ends are summed by code.  Some kinds are not a noise: the coefficient of CURVED
    (4) is the form less the threshold times the weight, that of GIVEN (5) the weight itself, and FORMS_ONLY (6) stores
    the forms.
    """
    slot = tl.program_id(0)
    i = tl.arange(0, D)
    entries = i[:, None] * D + i[None, :]
    if KIND != 5:
        a = tl.load(POINT + entries)
        a_high = a.to(tl.float16)
        a_low = (a - a_high.to(tl.float32)).to(tl.float16)
    scale = 0.0
    if not ARE_PLANES:
        scale = tl.load(SCALES + i, mask=i < d, other=0.0)
    first = slot.to(tl.int64) * rows_of_slot
    n = tl.maximum(tl.minimum(n_rows - first, rows_of_slot), 0).to(tl.int32)
    CODES += first
    WEIGHTS += first
    FORMS += first
    loss = tl.zeros((B,), tl.float64)
    slope = tl.zeros((B,), tl.float64)
    bend = tl.zeros((B,), tl.float64)
    least = tl.full((B,), float("inf"), tl.float32)
    total = tl.zeros((D, D), tl.float32)
    if N_CODES > 0:
        numbers = tl.arange(0, N_CODES)
        lower = tl.zeros((N_CODES,), tl.float64)
        upper = tl.zeros((N_CODES,), tl.float64)
    for start in tl.range(0, n, B, num_stages=STAGES):
        r = start + tl.arange(0, B)
        ok = r < n
        if ARE_PLANES:
            row = (first + start).to(tl.int32)
            x = _whole(HIGH.load([row, 0]), LOW.load([row, 0]), LEVEL)
            z_high = HIGH.load([row, (N_LEGS - 1) * WIDTH])
            z_low = LOW.load([row, (N_LEGS - 1) * WIDTH])
        else:
            z = _stored(HIGH + first * N_LEGS * d, r, N_LEGS - 1, n, i, scale, d, N_LEGS)
            x = z
            if N_LEGS == 2:
                near = _stored(HIGH + first * N_LEGS * d, r, 0, n, i, scale, d, N_LEGS)
                x = z - near
                z = z + near
            z_high, z_low = _parts(z)
            x_high, x_low = _parts(x)
            x = _whole(x_high, x_low, LEVEL)
        if KIND == 5:
            c = tl.load(WEIGHTS + r, mask=ok, other=0.0)
        else:
            q = _forms(z_high, z_low, x, a_high, a_low, LEVEL) * form_unit
            if KIND == 6:
                tl.store(FORMS + r, q.to(tl.float64) * (1.0 + form_rest), mask=ok)
            elif KIND == 4:
                c = tl.load(WEIGHTS + r, mask=ok, other=0.0) * ((q - threshold) + (q * form_rest - threshold_rest))
                slope += tl.where(ok, c, 0.0).to(tl.float64)
            elif N_CODES > 0:
                code = tl.load(CODES + r, mask=ok, other=0).to(tl.int32)
                low = tl.load(ENDS + code)
                up = tl.load(ENDS + N_CODES + code)
                above = (q - low) + q * form_rest
                below = (up - q) - q * form_rest
                f, p, h = _noise(above, KIND, LEVEL == 0)
                g, s, _ = _noise(below, KIND, LEVEL == 0)
                f += g
                if WEIGHTED:
                    w = tl.load(WEIGHTS + r, mask=ok, other=0.0)
                    f = f * w
                    p = p * w
                    s = s * w
                loss += tl.where(ok, f, 0.0).to(tl.float64)
                least = tl.minimum(least, tl.where(ok, tl.minimum(above, below), float("inf")))
                p = tl.where(ok, p, 0.0)
                s = tl.where(ok, s, 0.0)
                has_code = ok[:, None] & (code[:, None] == numbers[None, :])
                lower += tl.sum(tl.where(has_code, p[:, None], 0.0), 0).to(tl.float64)
                upper += tl.sum(tl.where(has_code, s[:, None], 0.0), 0).to(tl.float64)
                c = p - s
            else:
                s = tl.where(ok, 2.0 * tl.load(CODES + r, mask=ok, other=0).to(tl.float32) - 1.0, 0.0)
                m = s * ((q - threshold) + (q * form_rest - threshold_rest))
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
                slope += tl.where(ok, c, 0.0).to(tl.float64)
        if KIND != 6:
            total += _outer(z_high, z_low, x, c * coefficient_unit, LEVEL) * one
    if KIND != 6:
        SUMS += slot * (4 + 2 * N_CODES)
        tl.store(SUMS, tl.sum(loss, 0))
        tl.store(SUMS + 1, tl.sum(slope, 0))
        tl.store(SUMS + 2, tl.sum(bend, 0))
        tl.store(SUMS + 3, tl.min(least, 0).to(tl.float64))
        if N_CODES > 0:
            tl.store(SUMS + 4 + numbers, lower)
            tl.store(SUMS + 4 + N_CODES + numbers, upper)
        tl.store(TOTALS + slot.to(tl.int64) * D * D + entries, total)


@triton.jit
def terms_kernel(
    SQUARED,
    CODES,
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
        s = 2.0 * tl.load(CODES + r, mask=ok, other=0).to(tl.float64) - 1.0
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
