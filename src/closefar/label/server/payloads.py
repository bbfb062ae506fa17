"""The bodies of requests: read up to a limit, and checked value by value, with a sentence for each wrong one."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from closefar.label.server.security import Receive, RequestError, Scope, headers_of, one_header

LARGEST_BODY = 65536

_KEY = re.compile(r"[A-Za-z0-9_-]{8,64}")
_TOO_LARGE = f"The body of a request must have {LARGEST_BODY} bytes at most."


async def read_json(scope: Scope, receive: Receive) -> dict[str, Any]:
    """Return the JSON object in the body of a request."""
    headers = headers_of(scope)
    if one_header(headers, "content-type").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "The body of a request must be application/json.", connection="close")
    length = one_header(headers, "content-length")
    if length and (not length.isdigit() or int(length[:20]) > LARGEST_BODY):
        raise RequestError(413, _TOO_LARGE, connection="close")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError(400, "The request ended early.")
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            raise RequestError(413, _TOO_LARGE, connection="close")
        if not message.get("more_body", False):
            return _parsed(bytes(body))


def check_keys(found: dict[str, Any], allowed: set[str], of: str) -> None:
    """Refuse keys that nobody reads: they are mistakes, or worse."""
    unknown = sorted(set(found) - allowed)
    if unknown:
        raise RequestError(400, f"{of} may have {', '.join(sorted(allowed))}; got {_shown(unknown[0])}.")


def text_in(found: dict[str, Any], name: str, longest: int) -> str:
    value = found.get(name)
    if not isinstance(value, str) or len(value) > longest or not _is_text(value):
        raise RequestError(400, f"{name} must be a text of {longest} characters at most; got {_shown(value)}.")
    return value


def key_in(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise RequestError(400, f"{name} must be 8 to 64 letters, digits, - or _; got {_shown(value)}.")
    return value


def integer_in(found: dict[str, Any], name: str, least: int, most: int) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RequestError(400, f"{name} must be an integer from {least} to {most}; got {_shown(value)}.")
    return value


def number_in(found: dict[str, Any], name: str, least: float, most: float) -> float:
    value = found.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        raise RequestError(400, f"{name} must be a number from {least:g} to {most:g}; got {_shown(value)}.")
    return float(value)  # type: ignore[arg-type]


def list_in(found: dict[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    value = found.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= most or not all(isinstance(each, dict) for each in value):
        raise RequestError(400, f"{name} must be a list of 1 to {most} objects; got {_shown(value)}.")
    return value


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):  # also of invalid UTF-8 and of integers with thousands of digits
        raise RequestError(400, "The body of a request must be valid JSON, with no name twice in an object.") from None
    if not isinstance(value, dict):
        raise RequestError(400, f"The body of a request must be a JSON object; got {_shown(value)}.")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _is_text(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is too large"
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
