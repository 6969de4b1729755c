"""What the fake agent's checkpointer holds. It outlives the process, as the real one does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.simulation.scripts import Script
from vystak_turns.core.turn import Json, Question


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed step with its stamp, and what it shows."""

    id: str
    source: str
    turn_id: str
    epoch: int
    shown: tuple[dict[str, Any], ...] = ()
    text: str = ""


@dataclass(slots=True)
class Part:
    """What is kept of one task of the step that is not committed yet.

    `events` are those of a finished task; `answers` the decisions that its node has had, by
    interrupt id; `nested` counts the committed steps of its nested graph.
    """

    events: tuple[dict[str, Any], ...] | None = None
    text: str = ""
    question: Question | None = None
    answers: dict[str, Json] = field(default_factory=dict)
    nested: int = 0
    error: str | None = None


@dataclass(slots=True)
class Thread:
    """One thread. `script` and `parts` are those of its last turn."""

    checkpoints: list[Checkpoint] = field(default_factory=list)
    script: Script = ()
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def turn_id(self) -> str | None:
        """The last turn that left a stamp."""
        return self.checkpoints[-1].turn_id if self.checkpoints else None

    def stamped(self, turn_id: str) -> bool:
        """Whether a checkpoint carries the turn's stamp."""
        return any(c.turn_id == turn_id for c in self.checkpoints)

    def steps_of(self, turn_id: str) -> list[Checkpoint]:
        """The turn's boundaries, oldest first; the first one only took the input in."""
        return [c for c in self.checkpoints if c.turn_id == turn_id and c.source == "loop"]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do for the last turn."""
        turn_id = self.turn_id
        return turn_id is not None and len(self.steps_of(turn_id)) == len(self.script) + 1

    @property
    def pending(self) -> tuple[Question, ...]:
        """The interrupts that wait, in the order of their tasks."""
        parts = [self.parts[index] for index in sorted(self.parts)]
        return tuple(p.question for p in parts if p.question is not None and p.events is None)

    @property
    def error(self) -> str | None:
        """The graph's own error."""
        return next((p.error for p in self.parts.values() if p.error is not None), None)

    def finished_parts(self) -> dict[int, tuple[dict[str, Any], ...]]:
        """What the finished tasks of the uncommitted step show."""
        return {i: p.events for i, p in sorted(self.parts.items()) if p.events is not None}

    def rendered(self, turn_id: str) -> list[dict[str, Any]]:
        """All that is kept of a turn, as events."""
        shown = [event for step in self.steps_of(turn_id) for event in step.shown]
        if self.turn_id == turn_id:
            shown += [event for events in self.finished_parts().values() for event in events]
        return shown

    def text_of(self, turn_id: str) -> str:
        """All committed text of a turn."""
        return "".join(c.text for c in self.steps_of(turn_id))


@dataclass(slots=True)
class Execution:
    """One start of one task, or of one step of its nested graph.

    `outcome` is `None` until something of it is kept: then `done`, `asked` or `failed`.
    """

    turn_id: str
    thread_id: str
    step: int
    task: int
    nested: int | None
    life: int
    at_s: float
    outcome: str | None = None
    answers: dict[str, Json] = field(default_factory=dict)
