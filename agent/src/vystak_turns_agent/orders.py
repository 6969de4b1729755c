"""What callers may ask of a thread, and how an order is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import BaseMessage

from vystak_turns_rpc.vocabulary import RefusalReason

UNAVAILABLE: Final = 503
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404


class RefusedError(Exception):
    """The call is not carried out; nothing was changed."""

    def __init__(self, status: int, reason: str, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A turn's first call. Without `epoch` the caller is not turn control and rules nobody."""

    thread_id: str
    turn_id: str
    epoch: int | None
    messages: tuple[BaseMessage, ...]
    caller_fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with a turn. `after_checkpoint_id` None means from the turn's start."""

    thread_id: str
    turn_id: str
    epoch: int
    catch_up: bool
    after_checkpoint_id: str | None
    decisions: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class PlainResume:
    """The original's call: no turn, no epoch; `value` answers the first pending interrupt."""

    thread_id: str
    value: Any


def refused(reason: RefusalReason, words: str) -> RefusedError:
    """Build a refusal whose reason turn control knows."""
    unknown = reason in {RefusalReason.UNKNOWN_CHECKPOINT, RefusalReason.UNKNOWN_THREAD}
    return RefusedError(_NOT_FOUND if unknown else _CONFLICT, reason.value, words)
