"""The life of a turn as a table: `step(turn, fact) -> (turn, effects)`.

A turn is `queued` when its row is committed and `running` when its request was handed to the
agent. From then on there is one question only: where does it stand? Whenever the agent's stream
is gone without a terminal event, the turn is `probing`, and `probe.first_fitting_row` says how it
goes on. There is no second recovery path: the start of a process, a broken connection, a parked
graph and an accepted decision all come through `probing`.

The rules that shape the table:

* The new turn is committed before its effects are carried out, so every effect has its reason in
  the journal. The two exceptions are the events that end or park a turn: they are appended first
  and committed when the log has them (`TerminalAppended`, `ApprovalAsked`), since a reader must
  never wait for an event that a status already promises (R1, R8).
* A claim is a commit before an effect, too: it takes a token, which fences all drivers before it
  (R7), and counts an attempt, so that a turn that kills whoever touches it ends at the cap (R9).
* A fact of a driver that is not the journal's one any more changes nothing (R7).
* `cancelling` is `probing` with a committed end: row 4 closes it, unless a terminal event is in
  the log already.

Pairs of state and fact that are not in the table cannot happen; `step` raises for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, assert_never

from vystak_turns.core.effects import (
    Dispatch,
    Drain,
    Fail,
    ForgetBoundary,
    Pace,
    Probe,
    StandDown,
)
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
    ImpossibleFactError,
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
from vystak_turns.core.rows import Step, end, park_turn, take_row
from vystak_turns.core.turn import Claim, Decision, Failure, Park, Turn
from vystak_turns_rpc.vocabulary import FailureCode, TurnState


def step(turn: Turn, fact: Fact) -> Step:
    """Return the turn after `fact`, and what is to be done.

    Raises:
        ImpossibleFactError: the pair of state and fact is not in the table.

    """
    rule = TABLE.get((turn.state, type(fact)))
    if rule is None:
        message = f"{type(fact).__name__} cannot happen to a turn that is {turn.state}"
        raise ImpossibleFactError(message)
    token = getattr(fact, "token", None)
    if token is not None and token != turn.token:
        return turn, (StandDown(),)
    return rule(turn, fact)


def _dispatch_first(turn: Turn, fact: DriverStarted) -> Step:
    # The first dispatch costs nothing, and so does the next one when this one is refused (R12).
    started = replace(
        turn,
        state=TurnState.RUNNING,
        token=fact.new_token,
        seq_limit=fact.seq_limit,
        claim=Claim.FIRST,
    )
    return started, (Dispatch(),)


def _take_over(turn: Turn, fact: DriverStarted) -> Step:
    return _ask_again(turn, fact.new_token), (Probe(),)


def _ask_again(turn: Turn, new_token: int) -> Turn:
    """Enter `probing` (or stay `cancelling`) with a token that fences the driver before."""
    state = TurnState.CANCELLING if turn.intent else TurnState.PROBING
    refused = turn.claim is Claim.FIRST and turn.state is not TurnState.RUNNING
    claim = Claim.FIRST if refused else Claim.NONE
    return replace(turn, state=state, token=new_token, claim=claim)


def _stream_ended(turn: Turn, fact: StreamEnded) -> Step:
    # A run that drained finished its step in order: the next claim is not a sign of trouble (R12).
    in_order = fact.how is StreamEnd.DRAINED
    asking = replace(_ask_again(turn, fact.new_token), free_claim=turn.free_claim or in_order)
    if fact.how is StreamEnd.CLEAN:
        asking = replace(asking, park=_without_used_up(asking.park))
    return asking, (Probe(),)


def _without_used_up(park: Park | None) -> Park | None:
    """Drop the answers that a run has taken which ended in order (R6).

    What waits now is the next question, although without an id it may look like the last one: two
    interrupts of one node stand on the same checkpoint. To ask again is harmless; to approve what
    nobody was asked is not.
    """
    if park is None:
        return None
    return replace(park, decisions=tuple(d for d in park.decisions if not d.unnamed))


def _log_moved(turn: Turn, fact: LogMoved) -> Step:
    return _ask_again(turn, fact.new_token), (Probe(),)


def _event_refused(turn: Turn, fact: EventRefused) -> Step:
    failure = Failure(FailureCode.EVENT_TOO_LARGE, fact.words)
    return turn, (Drain(), Fail(failure))


def _call_refused(turn: Turn, fact: CallRefused) -> Step:
    returned = _give_back(turn)
    if fact.refusal is Refusal.WRONG:
        failure = Failure(FailureCode.AGENT_REFUSED, fact.words)
        return returned, (Fail(failure),)
    asking = replace(_ask_again(returned, fact.new_token), claim=returned.claim)
    if fact.refusal is Refusal.UNKNOWN_CHECKPOINT and fact.after is not None:
        return asking, (ForgetBoundary(fact.after), Probe())
    return asking, (Probe(Pace.LATER),)


def _give_back(turn: Turn) -> Turn:
    """Undo what the last claim cost: its call started nothing."""
    match turn.claim:
        case Claim.COUNTED:
            spent = max(turn.attempts - 1, 0)
            return replace(
                turn, attempts=spent, redrives=max(turn.redrives - 1, 0), claim=Claim.NONE
            )
        case Claim.FIRST:
            return replace(turn, free_claim=True)
        case Claim.FREE:
            return replace(turn, free_claim=True, claim=Claim.NONE)
        case Claim.NONE:
            return turn
        case _:
            assert_never(turn.claim)


def _caught_up(turn: Turn, _fact: CaughtUp) -> Step:
    return turn, (Probe(),)


def _seqs_reserved(turn: Turn, fact: SeqsReserved) -> Step:
    return replace(turn, seq_limit=max(turn.seq_limit, fact.limit)), ()


def _boundary_reached(turn: Turn, fact: BoundaryReached) -> Step:
    seq = fact.boundary.seq
    return replace(turn, boundary_seq=seq, last_seq=max(seq, turn.last_seq)), ()


def _rewind_decided(turn: Turn, fact: RewindDecided) -> Step:
    return replace(turn, boundary_seq=-1 if fact.target is None else fact.target.seq), ()


def _log_restarted(turn: Turn, fact: LogRestarted) -> Step:
    return replace(turn, origin_seq=fact.seq, last_seq=max(fact.seq, turn.last_seq)), ()


def _approval_asked(turn: Turn, fact: ApprovalAsked) -> Step:
    parked = park_turn(turn, fact.park, fact.seq)
    if turn.intent is not None:
        return replace(parked, state=TurnState.CANCELLING), (Probe(),)
    return parked, ()


def _terminal_appended(turn: Turn, fact: TerminalAppended) -> Step:
    return end(turn, fact.seq, fact.failure), ()


def _decision_given(turn: Turn, fact: DecisionGiven) -> Step:
    if turn.park is None:
        message = "a parked turn without a question"
        raise ImpossibleFactError(message)
    decision = Decision(turn.park.asked, fact.value)
    decided = replace(turn.park, decisions=(*turn.park.decisions, decision))
    # An accepted decision is progress, and its first delivery is no retry.
    waiting = replace(
        turn,
        state=TurnState.PROBING,
        park=decided,
        attempts=0,
        claimed_checkpoint=None,
        claim=Claim.NONE,
        free_claim=True,
    )
    return waiting, (Probe(),)


def _end_before_dispatch(turn: Turn, fact: EndWanted) -> Step:
    return replace(turn, state=TurnState.CANCELLING, intent=fact.intent), (Probe(),)


def _end_while_driven(turn: Turn, fact: EndWanted) -> Step:
    # The driver reads on: a result that comes before the run has drained is faster than the end.
    return replace(turn, state=TurnState.CANCELLING, intent=fact.intent), (Drain(),)


def _keep_first_end(turn: Turn, _fact: EndWanted) -> Step:
    return turn, ()


def _let_go(turn: Turn, _fact: LetGo) -> Step:
    return replace(turn, free_claim=True), ()


def _nothing_to_let_go(turn: Turn, _fact: LetGo) -> Step:
    return turn, ()


Rule: TypeAlias = Callable[[Turn, Any], Step]

_LOG_FACTS: dict[type, Rule] = {
    SeqsReserved: _seqs_reserved,
    BoundaryReached: _boundary_reached,
    RewindDecided: _rewind_decided,
    LogRestarted: _log_restarted,
    LogMoved: _log_moved,
    EventRefused: _event_refused,
    TerminalAppended: _terminal_appended,
}
_STREAM_FACTS: dict[type, Rule] = {StreamEnded: _stream_ended, CallRefused: _call_refused}
_PROBE_FACTS: dict[type, Rule] = {
    Probed: take_row,
    CaughtUp: _caught_up,
    ApprovalAsked: _approval_asked,
}

_BY_STATE: Mapping[TurnState, dict[type, Rule]] = {
    TurnState.QUEUED: {
        DriverStarted: _dispatch_first,
        EndWanted: _end_before_dispatch,
    },
    TurnState.RUNNING: {
        DriverStarted: _take_over,
        EndWanted: _end_while_driven,
        LetGo: _let_go,
        **_LOG_FACTS,
        **_STREAM_FACTS,
    },
    TurnState.PROBING: {
        DriverStarted: _take_over,
        EndWanted: _end_while_driven,
        LetGo: _nothing_to_let_go,
        **_LOG_FACTS,
        **_STREAM_FACTS,
        **_PROBE_FACTS,
    },
    TurnState.PARKED: {DecisionGiven: _decision_given, EndWanted: _end_before_dispatch},
    TurnState.CANCELLING: {
        DriverStarted: _take_over,
        EndWanted: _keep_first_end,
        LetGo: _nothing_to_let_go,
        **_LOG_FACTS,
        **_STREAM_FACTS,
        **_PROBE_FACTS,
    },
    TurnState.COMPLETED: {},
    TurnState.FAILED: {},
    TurnState.CANCELLED: {},
}

TABLE: Mapping[tuple[TurnState, type], Rule] = {
    (state, fact): rule for state, rules in _BY_STATE.items() for fact, rule in rules.items()
}
