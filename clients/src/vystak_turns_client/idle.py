"""What silence on a turn's subject means. Pure.

Silence is never the end by itself: turn control is asked, and whatever it says, the wait is bounded
(R9). Nobody's answer is no answer: only a status that says so ends a turn before the deadline.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from vystak_turns_rpc.vocabulary import WireStatus


class Verdict(StrEnum):
    """What the persister does after a silence, once it has read the log to its end."""

    WAIT = "wait"
    CONCLUDE = "conclude"
    """Turn control says that the turn is over, or does not know it."""
    OVERDUE = "overdue"
    """The deadline has passed: the turn is given up, and corrected if it ends after all."""
    REST = "rest"
    """The deadline has passed in a park: the decision starts a new persister."""


def verdict(status: WireStatus | None, waited_s: float, deadline_s: float) -> Verdict:
    """Decide after a silence; `status` is None when turn control could not be asked."""
    is_overdue = waited_s >= deadline_s
    match status:
        case None | WireStatus.RUNNING:
            return Verdict.OVERDUE if is_overdue else Verdict.WAIT
        case WireStatus.PARKED:
            return Verdict.REST if is_overdue else Verdict.WAIT
        case WireStatus.DONE | WireStatus.FAILED | WireStatus.UNKNOWN:
            return Verdict.CONCLUDE
        case _:
            assert_never(status)


def patience_s(idle_s: float, deadline_s: float, waited_s: float, is_silent: bool) -> float:
    """Return how long to wait for the next message.

    A turn that spoke since the last question gets its whole idle time, be the deadline past; one
    that stays silent no more than is left of it.
    """
    if not is_silent:
        return idle_s
    return min(idle_s, max(deadline_s - waited_s, 0.0))
