"""Times, sizes and counts as people read them."""

from __future__ import annotations

__all__ = ["as_bytes", "as_count", "as_time"]


def as_time(seconds: float) -> str:
    """Seconds in the unit that suits them.

    Examples
    --------
    >>> from closefar.cost.text import as_time
    >>> as_time(0.25), as_time(90), as_time(2e5)
    ('250 ms', '1.5 min', '2.3 days')
    """
    for limit, unit, name in ((1.0, 1e-3, "ms"), (60.0, 1.0, "s"), (3600.0, 60.0, "min"), (86400.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / unit:.2g} {name}" if seconds < 10 * unit else f"{seconds / unit:.0f} {name}"
    days = seconds / 86400.0
    return f"{days:.2g} days" if days < 10 else f"{days:,.0f} days"


def as_bytes(number: float) -> str:
    """Bytes in the unit that suits them.

    Examples
    --------
    >>> from closefar.cost.text import as_bytes
    >>> as_bytes(1.25e9), as_bytes(99.8e6), as_bytes(24)
    ('1.2 GB', '100 MB', '24 bytes')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{number / unit:.2g} {name}" if number < 10 * unit else f"{number / unit:,.0f} {name}"
    return f"{number:.0f} bytes"


def as_count(number: float) -> str:
    """A count with separators, or as a power of ten if it is very large."""
    if number < 1e9:
        return f"{number:,.0f}"
    digits, _, power = f"{number:.3g}".partition("e+")
    return f"{digits}e{int(power)}" if power else digits
