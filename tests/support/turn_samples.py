"""One turn in each state, and facts of each kind that can meet it: for tests and the diagram."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vystak_turns.core.facts import (
    ApprovalAsked,
    BoundaryReached,
    CallRefused,
    CaughtUp,
    DecisionGiven,
    DriverStarted,
    EndWanted,
    EventRefused,
    Fact,
    LetGo,
    LogMoved,
    LogRestarted,
    Probed,
    Refusal,
    RewindDecided,
    SeqsReserved,
    StreamEnd,
    StreamEnded,
    TerminalAppended,
)
from vystak_turns.core.findings import AgentView, Asked, Content, Findings, Tail, Terminal
from vystak_turns.core.turn import (
    Boundary,
    Decision,
    Failure,
    Intent,
    Park,
    Question,
    Turn,
)
from vystak_turns_rpc.vocabulary import TurnState

TOKEN = 7
NEXT = 8
QUESTION = Question("i1", {"ask": "may I?"})
PARK = Park("ck2", 1, "i1", (QUESTION,))
FAILURE = Failure("graph_error", "it broke")
BOUNDARIES = (Boundary("ck1", 1), Boundary("ck2", 4))


def turn_in(state: TurnState) -> Turn:
    """Return a turn as it may well look in this state."""
    turn = Turn(
        turn_id="t1",
        agent="worker",
        stream_subject="vystak.default.streams.c1.t1",
        thread_id="resp_1",
        created_at_s=1.0,
        updated_at_s=2.0,
        state=state,
        token=TOKEN,
        last_seq=4,
        boundary_seq=4,
        seq_limit=1000,
    )
    match state:
        case TurnState.QUEUED:
            return replace(turn, token=0, last_seq=-1, boundary_seq=-1, seq_limit=0)
        case TurnState.PARKED:
            return replace(turn, park=PARK, generation=1)
        case TurnState.CANCELLING:
            return replace(turn, intent=Intent.CANCELLED)
        case _:
            return turn


def tail(what: Terminal | Asked | Content | None = None, seq: int = 6) -> Tail:
    """Return the last message of a log that went on after the newest boundary."""
    return Tail(60 + seq, seq, TOKEN - 1, f"t1:{seq}:{TOKEN - 1}", what or Content())


def view(**changes: object) -> AgentView:
    """Return the agent's answer for a thread in the middle of the turn."""
    middle = AgentView(
        checkpoint_id="ck2",
        stamped=True,
        active=False,
        finished=False,
        error=None,
        questions=(),
        epoch=TOKEN - 1,
    )
    return replace(middle, **changes)  # type: ignore[arg-type]


def findings(answer: AgentView | None = None, last: Tail | None = None) -> Findings:
    """Return what a probe found, by default with content after the newest boundary."""
    return Findings(
        tail=last or tail(), head_seq=0, boundaries=BOUNDARIES, view=answer, max_attempts=3
    )


def probed(found: Findings) -> Probed:
    """Return the fact that a probe found this."""
    return Probed(TOKEN, NEXT, found)


PROBES: dict[str, Probed] = {
    "row 1: terminal event in the log": probed(findings(None, tail(Terminal(None)))),
    "row 2: agent silent": probed(findings(None)),
    "row 3: run active": probed(findings(view(active=True))),
    "row 5: not started": probed(findings(view(stamped=False, checkpoint_id=None))),
    "row 6: finished": probed(findings(view(finished=True))),
    "row 7: graph error": probed(findings(view(error="it broke"))),
    "row 9: undecided": probed(findings(view(questions=(QUESTION,)))),
    "row 9: asked already": probed(findings(view(questions=(QUESTION,)), tail(Asked(1, "i1")))),
    "row 10: in the middle": probed(findings(view())),
}
"""Row 4 is every probe of a cancelling turn, row 8 needs a decision: see `decided_turn`."""


def decided_turn(state: TurnState = TurnState.PROBING) -> Turn:
    """Return a turn whose question has its decision."""
    park = replace(PARK, decisions=(Decision("i1", "yes"),))
    return replace(turn_in(state), park=park, generation=1, free_claim=True)


def facts() -> Iterator[tuple[str, Fact]]:
    """Yield facts of every kind, each with the words that the diagram shows."""
    yield "driver started", DriverStarted(NEXT, 1000)
    yield from PROBES.items()
    for refusal in Refusal:
        yield "call refused", CallRefused(TOKEN, NEXT, refusal, "no", BOUNDARIES[1])
    for how in StreamEnd:
        yield "stream ended", StreamEnded(TOKEN, NEXT, how)
    yield "caught up", CaughtUp(TOKEN)
    yield "log moved", LogMoved(TOKEN, NEXT)
    yield "event refused", EventRefused(TOKEN, "too large")
    yield "seqs reserved", SeqsReserved(TOKEN, 2000)
    yield "boundary reached", BoundaryReached(TOKEN, Boundary("ck3", 9))
    yield "rewind decided", RewindDecided(TOKEN, BOUNDARIES[0])
    yield "log restarted", LogRestarted(TOKEN, 9)
    yield "approval asked", ApprovalAsked(TOKEN, PARK, 9)
    yield "completed", TerminalAppended(TOKEN, 9, None)
    yield "failed", TerminalAppended(TOKEN, 9, FAILURE)
    yield "cancelled", TerminalAppended(TOKEN, 9, Failure("cancelled", "as asked"))
    yield "decision given", DecisionGiven("yes")
    yield "cancel", EndWanted(Intent.CANCELLED)
    yield "supersede", EndWanted(Intent.SUPERSEDED)
    yield "let go", LetGo(TOKEN)
