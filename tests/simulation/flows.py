"""What callers do: flows as plain data, and the callers that act on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Start(StrEnum):
    """When a turn is dispatched."""

    AT_ONCE = "at once"
    AFTER_END = "when the turn before it has ended"
    WHILE_PARKED = "when the turn before it is parked"
    WHILE_RUNNING = "while the turn before it runs"


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn as its caller wants it, and how it may end (status, or status and code).

    Attributes:
        script: the input (see `scripts`).
        ends: the permitted ends.
        agent: whose turn it is.
        same_thread: whether it goes on with the thread of the turn before it.
        start: when it is dispatched.
        waits_s: how long its caller thinks about each question.
        voices: how many callers decide each question at once.
        plain: decide in the original's form, without a generation.
        stale: first send a decision for a question that is not asked any more.
        repeats: send createDetached again, the same and another one.
        cancels: cancel when this status is first seen.
        kills_caller: each call to the agent kills turn control.
        strict: it must not come to the cap, whatever happens.

    """

    script: str
    ends: tuple[str, ...] = ("done",)
    agent: str = "worker"
    same_thread: bool = False
    start: Start = Start.AFTER_END
    waits_s: float = 0.0
    voices: int = 1
    plain: bool = False
    stale: bool = False
    repeats: bool = False
    cancels: str | None = None
    kills_caller: bool = False
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Flow:
    """A story: turns that belong together.

    Attributes:
        max_age_s: how long the log keeps a message.
        keepalive_s: the service's limit of the same name; 0: no keep-alives.
        poison: a turn of it costs its neighbours attempts.

    """

    name: str
    asks: tuple[Ask, ...]
    max_age_s: float = 3600.0
    keepalive_s: float = 0.0
    poison: bool = False


SUPERSEDED: Final = ("failed superseded",)
CANCELLED: Final = ("failed cancelled", "done")
GRAPH_ERROR: Final = ("failed graph_error",)
EXHAUSTED: Final = ("failed attempts_exhausted",)


def _alone(name: str, script: str, **more: object) -> Flow:
    return Flow(name, (Ask(script, **more),))  # type: ignore[arg-type]


FLOWS: Final[tuple[Flow, ...]] = (
    _alone("plain tools", "two tools"),
    Flow("second turn of a thread", (Ask("hello"), Ask("one tool", same_thread=True))),
    _alone("approval before a tool", "approval"),
    _alone("words before a question", "words, then a question"),
    _alone("parallel tools", "parallel"),
    _alone("parallel voices", "parallel voices"),
    _alone("two questions at once", "two questions at once"),
    _alone("one asks while one works", "one asks, one works"),
    _alone("two questions of one node", "two questions of one node", stale=True),
    _alone("questions beside questions", "more questions beside another"),
    _alone("the same tool twice", "the same tool twice", stale=True, plain=True),
    _alone("nested graph", "nested"),
    _alone("private, removed and replaced words", "private words"),
    _alone("many voices", "approval", voices=100),
    _alone("repeated dispatch", "one tool", repeats=True),
    Flow("keep-alives", (Ask("slow tools"),), keepalive_s=0.4),
    Flow("keep-alives around a question", (Ask("approval", waits_s=2.0),), keepalive_s=0.05),
    _alone("graph error", "graph error", ends=GRAPH_ERROR),
    Flow(
        "failed thread goes on",
        (Ask("half fails", ends=GRAPH_ERROR), Ask("one tool", same_thread=True)),
    ),
    Flow(
        "refused on a running thread",
        (Ask("slow tools"), Ask("hello", same_thread=True, start=Start.WHILE_RUNNING)),
    ),
    Flow(
        "superseded while parked",
        (
            Ask("approval", ends=SUPERSEDED, waits_s=1e9),
            Ask("one tool", same_thread=True, start=Start.WHILE_PARKED),
        ),
    ),
    _alone("cancelled while running", "slow tools", ends=CANCELLED, cancels="running"),
    _alone("cancelled while parked", "approval", ends=CANCELLED[:1], cancels="parked"),
    Flow(
        "cancelled thread goes on",
        (
            Ask("two tools", ends=CANCELLED, cancels="running"),
            Ask("one tool", same_thread=True),
        ),
    ),
    Flow(
        "side by side",
        (
            Ask("two tools", start=Start.AT_ONCE),
            Ask("approval", start=Start.AT_ONCE),
            Ask("parallel", agent="other", start=Start.AT_ONCE),
        ),
    ),
    Flow("park outlives the log", (Ask("approval", waits_s=25.0),), max_age_s=10.0),
    Flow(
        "two parks outlive the log", (Ask("two questions at once", waits_s=25.0),), max_age_s=10.0
    ),
    Flow("run outlives the log", (Ask("slow tools"),), max_age_s=4.0),
    Flow(
        "poison and bystander",
        (
            Ask("kills its agent", ends=EXHAUSTED, start=Start.AT_ONCE),
            Ask("slow tools", start=Start.AT_ONCE),
        ),
        poison=True,
    ),
    Flow(
        "poison for turn control",
        (
            Ask("one tool", ends=EXHAUSTED, kills_caller=True),
            Ask("hello", agent="other"),
        ),
        poison=True,
    ),
)


def flow_named(name: str) -> Flow:
    """Return the flow of that name; raises KeyError."""
    return {flow.name: flow for flow in FLOWS}[name]
