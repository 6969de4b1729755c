"""What the panels do: the turns of a conversation, one after the other on one thread."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.support.graphs.storm import FAILS
from vystak_turns_rpc.vocabulary import FailureCode, WireStatus

LABELS: Final = {
    "steps": (("one",), ("two",), ("three",)),
    "threads": (("one",), ("two",), ("three",)),
    "branches": (("one", "two", "three"), ("four", "five")),
    "asking": (("one",), ("two", "three")),
}
"""The steps of an agent's turn: those of one graph step together."""

_QUESTIONS: Final = {"asking": 4}


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of a flow, and how it must end: its status, and its code if it failed."""

    agent: str
    words: str = "Go on."
    ends: WireStatus = WireStatus.DONE
    code: str | None = None
    leave_parked: bool = False
    cancel_after_s: float | None = None

    @property
    def questions(self) -> int:
        """How often the turn asks."""
        return _QUESTIONS.get(self.agent, 0)

    def word(self, chance: random.Random) -> str:
        """Make up a decision that nobody else makes."""
        return f"word-{chance.getrandbits(40):010x}"


@dataclass(frozen=True, slots=True)
class Flow:
    """A conversation."""

    name: str
    steps: tuple[Step, ...]


def flows(seed: int, turns: int) -> Iterator[Flow]:
    """Yield conversations until so many turns are in them; the same seed gives the same."""
    chance = random.Random(f"flows {seed}")
    while turns > 0:
        flow = _any_flow(chance)
        if len(flow.steps) > turns:
            flow = Flow("plain", (Step(chance.choice(list(LABELS))),))
        turns -= len(flow.steps)
        yield flow


def _any_flow(chance: random.Random) -> Flow:
    name = chance.choices(
        ("plain", "history", "failing", "superseding", "cancelled"), (60, 15, 5, 10, 10)
    )[0]
    agent = chance.choice(list(LABELS))
    match name:
        case "history":
            return Flow(name, (Step(agent), Step(agent, "Once more.")))
        case "failing":
            bad = Step("steps", FAILS, WireStatus.FAILED, FailureCode.GRAPH_ERROR)
            return Flow(name, (bad, Step("steps", "Now without mistakes.")))
        case "superseding":
            left = Step(
                "asking", ends=WireStatus.FAILED, code=FailureCode.SUPERSEDED, leave_parked=True
            )
            return Flow(name, (left, Step("asking", "Forget that.")))
        case "cancelled":
            after_s = chance.random() ** 2 * 8
            stopped = Step(
                agent,
                ends=WireStatus.FAILED,
                code=FailureCode.CANCELLED,
                cancel_after_s=after_s,
            )
            return Flow(name, (stopped, Step(agent, "Go on after all.")))
        case _:
            return Flow(name, (Step(agent),))
