"""The words that everybody shares: states, wire statuses, codes, and what makes an id safe."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final, TypeAlias

# A JSON value. Spelled Any: a recursive union costs casts everywhere and finds no mistakes.
Json: TypeAlias = Any


class TurnState(StrEnum):
    """Where a turn stands, as the journal and the core know it."""

    QUEUED = "queued"
    RUNNING = "running"
    PROBING = "probing"
    PARKED = "parked"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WireStatus(StrEnum):
    """The five words that `responses/turnStatus` may answer."""

    RUNNING = "running"
    PARKED = "parked"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class FailureCode(StrEnum):
    """Why a turn failed: `error.code` of its `response.failed` and of its status."""

    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    AGENT_REFUSED = "agent_refused"
    GRAPH_ERROR = "graph_error"
    EVENT_TOO_LARGE = "event_too_large"


class RefusalReason(StrEnum):
    """Why the agent refused a call: `reason` in the body of its 409 or 404 answers."""

    STALE_EPOCH = "stale_epoch"
    BUSY = "busy"
    NOT_PENDING = "not_pending"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    UNKNOWN_THREAD = "unknown_thread"


ENDED: Final[frozenset[TurnState]] = frozenset(
    {TurnState.COMPLETED, TurnState.FAILED, TurnState.CANCELLED}
)

_WIRE_STATUS: Final[dict[TurnState, WireStatus]] = {
    TurnState.QUEUED: WireStatus.RUNNING,
    TurnState.RUNNING: WireStatus.RUNNING,
    TurnState.PROBING: WireStatus.RUNNING,
    TurnState.PARKED: WireStatus.PARKED,
    TurnState.CANCELLING: WireStatus.RUNNING,
    TurnState.COMPLETED: WireStatus.DONE,
    TurnState.FAILED: WireStatus.FAILED,
    TurnState.CANCELLED: WireStatus.FAILED,
}

_SAFE_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_THREAD_ID: Final = re.compile(r"[!-~]{1,256}")


def wire_status(state: TurnState | None) -> WireStatus:
    """Return the wire's word for a state; None stands for a turn that nobody knows."""
    return WireStatus.UNKNOWN if state is None else _WIRE_STATUS[state]


def is_safe_token(text: str) -> bool:
    """Tell whether the text can stand as one token of a subject (R11): no dots, no wildcards."""
    return _SAFE_TOKEN.fullmatch(text) is not None


def is_thread_id(text: str) -> bool:
    """Tell whether the text can name a thread: 1 to 256 printable ASCII signs, no spaces."""
    return _THREAD_ID.fullmatch(text) is not None
