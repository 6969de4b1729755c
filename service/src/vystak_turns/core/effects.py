"""What is to be done next: the output of `transitions.step`. Imperative, no behaviour.

The new turn is committed first; then its effects are carried out in order. The first one that
reports a fact ends the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from vystak_turns.core.turn import Boundary, Decision, Failure, Park


class Pace(StrEnum):
    """When to probe: at once, or after a pause that grows while nothing changes."""

    NOW = "now"
    LATER = "later"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send the stored request to the agent and read its stream."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Have the thread go on and read its stream.

    With `catch_up`, the agent first sends the rendered history after `after` (`None`: from the
    turn's start). `decisions` answer exactly the pending interrupts; empty: continue.
    """

    catch_up: bool
    after: Boundary | None
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Read the rendered history of a parked thread after `after`; nothing runs."""

    after: Boundary | None
    checkpoint_id: str | None


@dataclass(frozen=True, slots=True)
class Rewind:
    """Send readers back to `target` (`None`: to the turn's start)."""

    target: Boundary | None


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Append the approval event of `park`'s generation."""

    park: Park


@dataclass(frozen=True, slots=True)
class Fail:
    """Append `response.failed`."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask the agent to finish the step in flight and stop the run."""


@dataclass(frozen=True, slots=True)
class ForgetBoundary:
    """Delete a boundary whose checkpoint the agent does not know, and all newer ones."""

    boundary: Boundary


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask log and agent where the turn stands."""

    pace: Pace = Pace.NOW


@dataclass(frozen=True, slots=True)
class StandDown:
    """Another driver has the turn: stop quietly and touch nothing."""


Effect: TypeAlias = (
    Dispatch
    | Resume
    | CatchUp
    | Rewind
    | AskApproval
    | Fail
    | Drain
    | ForgetBoundary
    | Probe
    | StandDown
)
