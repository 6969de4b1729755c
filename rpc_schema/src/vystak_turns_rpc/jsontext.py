"""Reading and writing JSON so that nothing but ValueError can come out of hostile bytes."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vystak_turns_rpc.vocabulary import Json

# Deeper values could be read here and then overflow the stack where they are written again.
MAX_DEPTH: Final = 128


def load_strict(payload: bytes) -> Json:
    """Read JSON that we are going to store and send on; raise ValueError for anything doubtful.

    Refused beside plain rubbish: NaN and infinities, lone surrogates (not encodable as UTF-8) and
    nesting deeper than `MAX_DEPTH`. Of a repeated key the last value counts, as in JavaScript.
    """
    try:
        value = json.loads(
            payload.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if payload.count(b"{") + payload.count(b"[") > MAX_DEPTH:
        _refuse_deep(value)
    if b"\\u" in payload:
        _refuse_lone_surrogates(value)
    return value


def load_lenient(payload: bytes) -> Json:
    """Read JSON that somebody else already accepted; raise ValueError where it is unreadable."""
    try:
        return json.loads(payload.decode("utf-8"))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def dump(value: Json) -> bytes:
    """Write compact JSON; raise ValueError for NaN, infinities and endless nesting."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


_TOO_DEEP: Final = f"JSON is nested deeper than {MAX_DEPTH} levels"


def _refuse_constant(name: str) -> NoReturn:
    message = f"{name} is not JSON"
    raise ValueError(message)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        message = "a number is too large"
        raise ValueError(message)
    return number


def _refuse_deep(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    if any(isinstance(item, dict | list) for item in level):
        raise ValueError(_TOO_DEEP)


def _children(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse_lone_surrogates(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        message = "a string holds half of a surrogate pair"
        raise ValueError(message) from None
