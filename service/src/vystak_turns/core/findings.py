"""What a probe finds: the ends of the turn log, the boundaries, and the agent's view."""

from __future__ import annotations

from dataclasses import dataclass

from vystak_turns.core.turn import Boundary, Failure, Question


@dataclass(frozen=True, slots=True)
class Terminal:
    """The log's last message ends the turn; `failure` is `None` when it completed."""

    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Rewound:
    """The log's last message is a rewind to `to_seq`."""

    to_seq: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The log's last message is an approval event."""

    generation: int | None
    interrupt_id: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """The log's last message is anything else."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last message on the turn's subject.

    Attributes:
        stream_seq: JetStream's number, the next append's expectation.
        seq: the turn's number; `None` when the body is not one of ours.
        token: the token of its driver; `None` when it carries none.
        message_id: its `Nats-Msg-Id`; `None` when it carries none.

    """

    stream_seq: int
    seq: int | None
    token: int | None
    message_id: str | None
    what: Terminal | Rewound | Asked | Content


@dataclass(frozen=True, slots=True)
class AgentView:
    """The agent's `checkpoint` answer for the turn's thread.

    `stamped` tells whether a checkpoint of the thread carries this turn's stamp; `epoch` is the
    highest one seen on the thread, `None` without stamps. An agent that does not `catch up` is one
    of the original's: it would run the graph where ours only tells the history.
    """

    checkpoint_id: str | None
    stamped: bool
    active: bool
    finished: bool
    error: str | None
    questions: tuple[Question, ...]
    epoch: int | None
    catches_up: bool = True


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the probe table looks at.

    Attributes:
        tail: the log's last message; `None` when the subject is empty.
        head_seq: the seq of the first retained message; `None` when there is none to be read.
        boundaries: the recorded ones, oldest first.
        view: the agent's answer; `None` when it could not be asked, or need not be.
        caught_up: seq at which this driver's own catch-up of this very checkpoint ended.
        max_attempts: the cap.
        waited_out: the agent stayed away for as long as a turn at the cap waits for it.

    """

    tail: Tail | None
    head_seq: int | None
    boundaries: tuple[Boundary, ...]
    view: AgentView | None
    max_attempts: int
    caught_up: Boundary | None = None
    waited_out: bool = False
