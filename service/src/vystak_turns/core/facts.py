"""What has happened: the only input of `transitions.step`. Past tense, no behaviour.

A fact of a driver carries the driver's token. When the journal names another driver by now, the
fact is stale and changes nothing (R7).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from vystak_turns.core.findings import Findings
from vystak_turns.core.turn import Boundary, Failure, Intent, Json, Park


class ImpossibleFactError(Exception):
    """A fact that cannot be true of a turn in this state: a defect, never an ordinary case."""


class StreamEnd(StrEnum):
    """How the agent's stream ended without a terminal event."""

    LOST = "lost"
    CLEAN = "clean"
    DRAINED = "drained"


class Refusal(StrEnum):
    """Why the agent did not take a call."""

    UNREACHABLE = "unreachable"
    STALE_EPOCH = "stale_epoch"
    BUSY = "busy"
    NOT_PENDING = "not_pending"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    UNKNOWN_THREAD = "unknown_thread"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class DriverStarted:
    """A driver took the turn: for its first dispatch, or because the driver before is gone."""

    new_token: int
    seq_limit: int


@dataclass(frozen=True, slots=True)
class Probed:
    """Log and agent were asked where the turn stands. `new_token` is for a claim."""

    token: int
    new_token: int
    findings: Findings


@dataclass(frozen=True, slots=True)
class CallRefused:
    """The agent was called and did not take the call: nothing was started by it.

    `after` is the boundary from which the call wanted to catch up.
    """

    token: int
    new_token: int
    refusal: Refusal
    words: str
    after: Boundary | None = None


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The agent's stream is over and brought no terminal event."""

    token: int
    new_token: int
    how: StreamEnd


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The history of a thread that does not run was read to its end and is in the log."""

    token: int


@dataclass(frozen=True, slots=True)
class LogMoved:
    """Somebody else's message came between what we read and what we wanted to append."""

    token: int
    new_token: int


@dataclass(frozen=True, slots=True)
class EventRefused:
    """The log does not take an event, however often it is sent: it is too large."""

    token: int
    words: str


@dataclass(frozen=True, slots=True)
class SeqsReserved:
    """The driver needs seqs up to `limit` (exclusive)."""

    token: int
    limit: int


@dataclass(frozen=True, slots=True)
class BoundaryReached:
    """The agent committed a checkpoint and everything before its marker is in the log."""

    token: int
    boundary: Boundary


@dataclass(frozen=True, slots=True)
class RewindDecided:
    """Readers are about to be sent back to `target` (`None`: to the turn's start)."""

    token: int
    target: Boundary | None


@dataclass(frozen=True, slots=True)
class LogRestarted:
    """A rewind to -1 is in the log at `seq`: readers start there."""

    token: int
    seq: int


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """The approval event of `park`'s generation is in the log at `seq`."""

    token: int
    park: Park
    seq: int


@dataclass(frozen=True, slots=True)
class TerminalAppended:
    """The log ends with a terminal event at `seq`; `failure` is `None` for a completed turn."""

    token: int
    seq: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class DecisionGiven:
    """A caller answered the question that the turn asks now."""

    value: Json


@dataclass(frozen=True, slots=True)
class EndWanted:
    """The turn is to end: cancelled by a caller, or superseded by a new turn."""

    intent: Intent


@dataclass(frozen=True, slots=True)
class LetGo:
    """The driver stops in order (SIGTERM): no attempt is spent by the next one (R12)."""

    token: int


DriverFact: TypeAlias = (
    Probed
    | CallRefused
    | StreamEnded
    | CaughtUp
    | LogMoved
    | EventRefused
    | SeqsReserved
    | BoundaryReached
    | RewindDecided
    | LogRestarted
    | ApprovalAsked
    | TerminalAppended
    | LetGo
)
Fact: TypeAlias = DriverStarted | DriverFact | DecisionGiven | EndWanted
