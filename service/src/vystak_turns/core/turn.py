"""The turn as the core sees it: plain values, no behaviour beyond asking questions of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from vystak_turns_rpc.vocabulary import ENDED, FailureCode, TurnState, WireStatus

Json: TypeAlias = Any
"""A decoded JSON value; the core passes such values on and never looks inside."""

UNNAMED: Final = "unnamed:"
"""How an interrupt id starts that is ours, in place of one that the agent did not give."""


class Intent(StrEnum):
    """Why a turn must end although its run did not: committed before it is acted upon."""

    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


class Claim(StrEnum):
    """What the last claim cost, so that a refused call can give exactly that back.

    `FIRST` is the first dispatch, which costs nothing: until an agent takes it, nothing that its
    thread holds is of this turn.
    """

    NONE = "none"
    FIRST = "first"
    COUNTED = "counted"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Question:
    """One pending interrupt: LangGraph's id for it, and what the graph asks."""

    interrupt_id: str
    payload: Json


@dataclass(frozen=True, slots=True)
class Decision:
    """The accepted answer to one question, kept until the thread has moved past it."""

    interrupt_id: str
    value: Json

    @property
    def unnamed(self) -> bool:
        """Whether the agent gave the question no id: the next one may look the same."""
        return self.interrupt_id.startswith(UNNAMED)


@dataclass(frozen=True, slots=True)
class Park:
    """The questions on which a thread is parked, and the answers so far.

    `generation` counts the questions ever asked in this turn: one approval event each.
    `asked` is the interrupt id to which `generation` belongs.
    """

    checkpoint_id: str | None
    generation: int
    asked: str
    questions: tuple[Question, ...]
    decisions: tuple[Decision, ...] = ()

    def question(self) -> Question:
        """The question that waits for its decision."""
        return next(q for q in self.questions if q.interrupt_id == self.asked)

    def decided_ids(self) -> frozenset[str]:
        """The interrupt ids that have a decision."""
        return frozenset(d.interrupt_id for d in self.decisions)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn ended without a result."""

    code: FailureCode | str
    message: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """A recorded pair: everything up to `seq` was shown when `checkpoint_id` was committed."""

    checkpoint_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One row of the journal.

    Attributes:
        token: the fencing number of the present driver; 0 before the first one.
        attempts: claims that counted since the last progress; what the cap looks at.
        redrives: claims that counted in the turn's whole life.
        claimed_checkpoint: where the thread stood at the last claim; progress is measured from it.
        claim: what the last claim cost.
        free_claim: the next claim adds no attempt (the driver before let go in order, or a
            decision is delivered for the first time).
        last_seq: the highest seq known to be in the log at the last commit; -1 for none.
        boundary_seq: the seq of the newest boundary; -1 for none.
        seq_limit: seqs below it are reserved: they may have been used.
        origin_seq: the seq at which a reader's content starts: 0, or the last rewind to -1.
        created_at_s, updated_at_s: seconds since the epoch.
        adopted_as: the status under which the original's bridge left the turn behind; `None` for
            a turn of ours. Its thread's checkpoints may carry no stamp.

    """

    turn_id: str
    agent: str
    stream_subject: str
    thread_id: str
    created_at_s: float
    updated_at_s: float
    state: TurnState = TurnState.QUEUED
    token: int = 0
    attempts: int = 0
    redrives: int = 0
    claimed_checkpoint: str | None = None
    claim: Claim = Claim.NONE
    free_claim: bool = False
    last_seq: int = -1
    boundary_seq: int = -1
    seq_limit: int = 0
    origin_seq: int = 0
    generation: int = 0
    park: Park | None = None
    intent: Intent | None = None
    failure: Failure | None = None
    adopted_as: WireStatus | None = None

    @property
    def ended(self) -> bool:
        """Whether the status is final (R1)."""
        return self.state in ENDED

    @property
    def holds_thread(self) -> bool:
        """Whether a new turn on the same thread has to reckon with this one (R13)."""
        return not self.ended and self.intent is not Intent.SUPERSEDED
