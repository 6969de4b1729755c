"""The one recovery path: which row of the probe table fits.

Whatever made us lose an agent's stream (a kill, a cut, silence, our own restart, the broker),
log, agent and journal are asked again, and the FIRST row that fits says how the turn goes on:

==  ====================================  ===================================================
 1  the log ends with a terminal event    close the row
 2  the agent cannot be asked             ask again later; costs no attempt
 3  a run is active on the thread         drain it, ask again
 4  an end was committed                  `response.failed`: cancelled or superseded
 5  no checkpoint carries our stamp       claim; rewind to -1 unless the log is empty; dispatch
 6  finished                              claim; rewind if needed; catch-up; terminal event
 7  the graph's own error                 `response.failed` with its words
 8  every pending interrupt is decided    claim; rewind unless the log ends with the question;
                                          resume by a map
 9  a pending interrupt is undecided      rewind and catch-up if needed; approval event, parked
10  else: in the middle                   claim; rewind; catch-up; continue
==  ====================================  ===================================================

The order matters. A terminal event in the log is final whoever wrote it (R1), so it comes before
all; nothing may be decided about a thread that still runs (3 before 4 to 10), since its state is
about to change; an end that was acknowledged wins over everything except a result that readers
have already seen (1 before 4 before 5 to 10).
"""

from __future__ import annotations

from enum import IntEnum

from vystak_turns.core.findings import AgentView, Asked, Findings, Rewound, Tail, Terminal
from vystak_turns.core.turn import Boundary, Claim, Park, Question, Turn
from vystak_turns_rpc.vocabulary import WireStatus


class Row(IntEnum):
    """The rows of the table, by number."""

    TERMINAL_IN_LOG = 1
    AGENT_SILENT = 2
    RUN_ACTIVE = 3
    END_WANTED = 4
    NOT_STARTED = 5
    FINISHED = 6
    GRAPH_ERROR = 7
    DECIDED = 8
    UNDECIDED = 9
    IN_THE_MIDDLE = 10


def first_fitting_row(turn: Turn, findings: Findings) -> Row:
    """Return the first row that fits."""
    if findings.tail is not None and isinstance(findings.tail.what, Terminal):
        return Row.TERMINAL_IN_LOG
    view = findings.view
    if view is None:
        return Row.AGENT_SILENT
    if view.active:
        return Row.RUN_ACTIVE
    if turn.intent is not None:
        return Row.END_WANTED
    if not (view.stamped or _is_of_adopted(turn, view, findings.boundaries)):
        return Row.NOT_STARTED
    return _row_of_a_resting_thread(turn, view)


def _is_of_adopted(turn: Turn, view: AgentView, boundaries: tuple[Boundary, ...]) -> bool:
    """Whether a thread without stamps stands where an adopted turn left it.

    A thread at rest may as well stand where the turn before left it: then only a boundary, or the
    park that was journaled, shows that the adopted turn had begun. Without either it is
    dispatched, which is the lesser harm of the two.
    """
    if turn.adopted_as is None or view.epoch is not None or view.checkpoint_id is None:
        return False
    rests = view.finished or bool(view.questions)
    return not rests or bool(boundaries) or turn.adopted_as is WireStatus.PARKED


def _row_of_a_resting_thread(turn: Turn, view: AgentView) -> Row:
    if turn.claim is Claim.FIRST and not view.catches_up:
        return Row.NOT_STARTED  # without stamps, an earlier turn's thread looks like this one's
    if view.finished:
        return Row.FINISHED
    if view.error is not None:
        return Row.GRAPH_ERROR
    if view.questions:
        return Row.UNDECIDED if next_question(turn, view) else Row.DECIDED
    return Row.IN_THE_MIDDLE


def next_question(turn: Turn, view: AgentView) -> Question | None:
    """The first pending interrupt without a decision of its own (R6)."""
    decided = turn.park.decided_ids() if turn.park else frozenset()
    return next((q for q in view.questions if q.interrupt_id not in decided), None)


def last_good_boundary(turn: Turn, findings: Findings, *, whole: bool) -> Boundary | None:
    """The newest boundary that a reader can be sent back to; `None`: the turn's start.

    Boundaries that a rewind took back are deleted before it is appended, so only the log can
    spoil one: its seq must still be retained (age takes the log's start, a broker that lost power
    its end). With `whole`, a log that has lost its start is
    begun anew, so that the finished turn can be read from its first event.
    """
    if findings.tail is None or findings.head_seq is None:
        return None
    if whole and not log_is_whole(turn, findings.head_seq):
        return None
    last_seq = findings.tail.seq
    retained = [
        b
        for b in _known_to_agent(findings)
        if findings.head_seq <= b.seq and (last_seq is None or b.seq <= last_seq)
    ]
    return retained[-1] if retained else None


def _known_to_agent(findings: Findings) -> tuple[Boundary, ...]:
    """Leave out boundaries above the checkpoint at which the thread stands.

    Ours keep what they told of, and refuse a catch-up from what they do not know. An agent that
    tells of a checkpoint before it is safe may come back at an older one, and go on from there.
    """
    view, boundaries = findings.view, findings.boundaries
    if view is None or view.catches_up:
        return boundaries
    ids = [b.checkpoint_id for b in boundaries]
    if view.checkpoint_id not in ids:
        return boundaries
    return boundaries[: ids.index(view.checkpoint_id) + 1]


def log_is_whole(turn: Turn, head_seq: int | None) -> bool:
    """Whether a reader that starts now still gets the turn's first event."""
    return head_seq is not None and head_seq <= turn.origin_seq


def begins_here(turn: Turn, tail: Tail | None, boundary: Boundary | None) -> bool:
    """Whether readers know already that the turn goes on from `boundary`."""
    if tail is None:
        return not shown_after(turn, tail, boundary)
    seq = -1 if boundary is None else boundary.seq
    return isinstance(tail.what, Rewound) and tail.what.to_seq == seq


def shown_after(turn: Turn, tail: Tail | None, boundary: Boundary | None) -> bool:
    """Whether readers may hold anything that came after `boundary`."""
    seq = -1 if boundary is None else boundary.seq
    if tail is None:
        return turn.last_seq > seq
    if isinstance(tail.what, Rewound) and tail.what.to_seq == seq:
        return False
    return tail.seq is None or tail.seq > seq


def asks_already(tail: Tail | None, park: Park) -> bool:
    """Whether the log ends with the approval event of exactly this question."""
    return (
        tail is not None
        and isinstance(tail.what, Asked)
        and tail.what.generation == park.generation
        and tail.what.interrupt_id == park.asked
    )


def is_caught_up(turn: Turn, findings: Findings, view: AgentView) -> bool:
    """Whether this driver's own catch-up brought the log to the thread's state, from its start."""
    reached = findings.caught_up
    if reached is None or reached.checkpoint_id != view.checkpoint_id:
        return False
    complete = findings.tail is not None and findings.tail.seq == reached.seq
    return complete and log_is_whole(turn, findings.head_seq)
