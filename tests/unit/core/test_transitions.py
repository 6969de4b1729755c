"""The table is total, and each pair that is not in it cannot happen."""

from __future__ import annotations

import typing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.state_diagram import diagram
from tests.support.turn_samples import (
    BOUNDARIES,
    FAILURE,
    NEXT,
    PARK,
    TOKEN,
    facts,
    findings,
    probed,
    turn_in,
    view,
)
from vystak_turns.core.effects import (
    Dispatch,
    Drain,
    Fail,
    ForgetBoundary,
    Probe,
    Resume,
    StandDown,
)
from vystak_turns.core.facts import (
    ApprovalAsked,
    CallRefused,
    DecisionGiven,
    DriverFact,
    DriverStarted,
    EndWanted,
    EventRefused,
    Fact,
    ImpossibleFactError,
    LetGo,
    Refusal,
    StreamEnd,
    StreamEnded,
    TerminalAppended,
)
from vystak_turns.core.transitions import TABLE, step
from vystak_turns.core.turn import UNNAMED, Claim, Decision, Failure, Intent
from vystak_turns_rpc.vocabulary import ENDED, TurnState

ALL_FACTS = typing.get_args(Fact)
DRIVEN = {TurnState.RUNNING, TurnState.PROBING, TurnState.CANCELLING}
ONLY_WHEN_PROBING = {"Probed", "CaughtUp", "ApprovalAsked"}


def expected_pairs() -> set[tuple[TurnState, str]]:
    """Which facts can meet which state, written down apart from the table."""
    pairs = {
        (TurnState.QUEUED, "DriverStarted"),
        (TurnState.QUEUED, "EndWanted"),
        (TurnState.PARKED, "DecisionGiven"),
        (TurnState.PARKED, "EndWanted"),
    }
    driver_facts = {fact.__name__ for fact in typing.get_args(DriverFact)}
    for state in DRIVEN:
        names = driver_facts | {"DriverStarted", "EndWanted"}
        if state is TurnState.RUNNING:
            names -= ONLY_WHEN_PROBING
        pairs |= {(state, name) for name in names}
    return pairs


@pytest.mark.parametrize("state", TurnState)
@pytest.mark.parametrize("fact", ALL_FACTS, ids=lambda fact: fact.__name__)
def test_every_pair_of_state_and_fact_is_in_the_table_or_raises(
    state: TurnState, fact: type
) -> None:
    samples = [sample for _, sample in facts() if type(sample) is fact]

    assert samples, "no sample of this fact"
    for sample in samples:
        if (state, fact.__name__) in expected_pairs():
            after, effects = step(turn_in(state), sample)
            assert after.turn_id == "t1"
            assert StandDown() not in effects
        else:
            with pytest.raises(ImpossibleFactError):
                step(turn_in(state), sample)


def test_the_table_holds_nothing_that_is_not_expected() -> None:
    assert {(state, fact.__name__) for state, fact in TABLE} == expected_pairs()


@pytest.mark.parametrize("state", sorted(DRIVEN))
def test_r7_a_fact_of_an_older_driver_changes_nothing(state: TurnState) -> None:
    for name, fact in facts():
        if not isinstance(fact, typing.get_args(DriverFact)) or (state, type(fact)) not in TABLE:
            continue
        stale = replace(fact, token=TOKEN - 1)

        after, effects = step(turn_in(state), stale)

        assert after == turn_in(state), name
        assert effects == (StandDown(),), name


@pytest.mark.parametrize("state", sorted(ENDED))
def test_r1_nothing_moves_a_turn_that_has_ended(state: TurnState) -> None:
    assert not [pair for pair in TABLE if pair[0] is state]


def test_a_queued_turn_is_dispatched_with_its_first_token_and_no_attempt() -> None:
    after, effects = step(turn_in(TurnState.QUEUED), DriverStarted(NEXT, 1000))

    assert (after.state, after.token, after.attempts) == (TurnState.RUNNING, NEXT, 0)
    assert effects == (Dispatch(),)


def test_r12_a_drained_run_makes_the_next_claim_free() -> None:
    drained, _ = step(turn_in(TurnState.RUNNING), StreamEnded(TOKEN, NEXT, StreamEnd.DRAINED))
    lost, _ = step(turn_in(TurnState.RUNNING), StreamEnded(TOKEN, NEXT, StreamEnd.LOST))

    assert (drained.state, drained.token) == (TurnState.PROBING, NEXT)
    assert drained.free_claim
    assert not lost.free_claim


def test_r12_a_driver_that_lets_go_makes_the_next_claim_free() -> None:
    after, effects = step(turn_in(TurnState.RUNNING), LetGo(TOKEN))

    assert after.free_claim
    assert not effects


@pytest.mark.parametrize("refusal", [r for r in Refusal if r is not Refusal.WRONG])
def test_a_refused_call_gives_its_claim_back(refusal: Refusal) -> None:
    counted = replace(turn_in(TurnState.RUNNING), attempts=2, redrives=5, claim=Claim.COUNTED)
    free = replace(turn_in(TurnState.RUNNING), attempts=2, claim=Claim.FREE)

    after_counted, _ = step(counted, CallRefused(TOKEN, NEXT, refusal, "no"))
    after_free, _ = step(free, CallRefused(TOKEN, NEXT, refusal, "no"))

    assert (after_counted.attempts, after_counted.redrives) == (1, 4)
    assert after_free.free_claim
    assert after_counted.state is TurnState.PROBING


def test_r5_a_thread_without_stamps_is_not_this_turns_until_a_dispatch_was_taken() -> None:
    """Else the turn would end `done` with the empty reply of a thread that has finished."""
    turn, _ = step(turn_in(TurnState.QUEUED), DriverStarted(TOKEN, 1000))
    old_thread = view(finished=True, catches_up=False)
    found = probed(replace(findings(old_thread), tail=None, head_seq=None, boundaries=()))

    for _ in range(2):
        turn, _ = step(turn, CallRefused(TOKEN, TOKEN, Refusal.UNREACHABLE, "refused"))
        turn, _ = step(turn, DriverStarted(TOKEN, 1000))
        turn, effects = step(turn, found)
        assert effects == (Dispatch(),)
        assert turn.attempts == 0
        turn = replace(turn, token=TOKEN)

    lost, _ = step(turn, StreamEnded(TOKEN, TOKEN, StreamEnd.LOST))
    _, effects = step(lost, found)
    assert isinstance(effects[-1], Resume)


@pytest.mark.parametrize(
    ("interrupt_id", "how", "kept"),
    [
        (f"{UNNAMED}ck2:0", StreamEnd.CLEAN, False),
        (f"{UNNAMED}ck2:0", StreamEnd.LOST, True),
        ("i1", StreamEnd.CLEAN, True),
    ],
)
def test_r6_an_answer_to_a_question_without_a_name_is_given_to_one_run_only(
    interrupt_id: str, how: StreamEnd, kept: bool
) -> None:
    """Else the first approval would also approve the next tool of the same node."""
    decision = Decision(interrupt_id, "yes")
    park = replace(PARK, asked=interrupt_id, decisions=(decision,))
    delivered = replace(turn_in(TurnState.RUNNING), park=park, generation=1)

    after, _ = step(delivered, StreamEnded(TOKEN, NEXT, how))

    assert after.park is not None
    assert after.park.decisions == ((decision,) if kept else ())


def test_an_older_claim_is_not_given_back_by_a_later_refusal() -> None:
    counted = replace(turn_in(TurnState.RUNNING), attempts=1, claim=Claim.COUNTED)
    lost, _ = step(counted, StreamEnded(TOKEN, NEXT, StreamEnd.LOST))

    refused, _ = step(lost, CallRefused(NEXT, NEXT + 1, Refusal.UNREACHABLE, "no"))

    assert refused.attempts == 1


def test_a_checkpoint_that_the_agent_does_not_know_is_forgotten() -> None:
    fact = CallRefused(TOKEN, NEXT, Refusal.UNKNOWN_CHECKPOINT, "no", BOUNDARIES[1])

    _, effects = step(turn_in(TurnState.RUNNING), fact)

    assert effects == (ForgetBoundary(BOUNDARIES[1]), Probe())


def test_a_request_that_the_agent_calls_wrong_fails_the_turn_with_its_words() -> None:
    fact = CallRefused(TOKEN, NEXT, Refusal.WRONG, "input must be text")

    after, effects = step(turn_in(TurnState.RUNNING), fact)

    assert effects == (Fail(Failure("agent_refused", "input must be text")),)
    assert not after.ended, "the log must have the terminal event first"


def test_an_event_that_no_log_takes_stops_the_run_and_fails_the_turn() -> None:
    _, effects = step(turn_in(TurnState.RUNNING), EventRefused(TOKEN, "2 MiB"))

    assert effects == (Drain(), Fail(Failure("event_too_large", "2 MiB")))


def test_r6_a_decision_is_kept_with_its_question_and_starts_the_count_again() -> None:
    parked = replace(turn_in(TurnState.PARKED), attempts=2, claimed_checkpoint="ck1")

    after, effects = step(parked, DecisionGiven({"approved": True}))

    assert after.state is TurnState.PROBING
    assert after.park is not None
    assert after.park.decisions == (Decision("i1", {"approved": True}),)
    assert (after.attempts, after.claimed_checkpoint, after.free_claim) == (0, None, True)
    assert effects == (Probe(),)


def test_r13_a_superseded_turn_does_not_hold_its_thread_any_more() -> None:
    after, _ = step(turn_in(TurnState.PARKED), EndWanted(Intent.SUPERSEDED))

    assert after.state is TurnState.CANCELLING
    assert not after.holds_thread
    assert turn_in(TurnState.PARKED).holds_thread


def test_the_first_wanted_end_stays() -> None:
    once, _ = step(turn_in(TurnState.RUNNING), EndWanted(Intent.CANCELLED))
    twice, _ = step(once, EndWanted(Intent.SUPERSEDED))

    assert twice.intent is Intent.CANCELLED


def test_a_question_asked_while_a_cancel_came_does_not_park_the_turn() -> None:
    after, effects = step(turn_in(TurnState.CANCELLING), ApprovalAsked(TOKEN, PARK, 9))

    assert after.state is TurnState.CANCELLING
    assert effects == (Probe(),)


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (None, TurnState.COMPLETED),
        (FAILURE, TurnState.FAILED),
        (Failure("cancelled", "as asked"), TurnState.CANCELLED),
        (Failure("superseded", "a newer turn"), TurnState.FAILED),
    ],
)
def test_the_terminal_event_says_how_the_turn_ended(
    failure: Failure | None, state: TurnState
) -> None:
    after, effects = step(turn_in(TurnState.RUNNING), TerminalAppended(TOKEN, 9, failure))

    assert (after.state, after.failure, after.last_seq) == (state, failure, 9)
    assert not effects


def test_a_claim_that_comes_to_nothing_leaves_probing_as_it_was() -> None:
    turn = turn_in(TurnState.PROBING)

    after, _ = step(turn, probed(findings(view(active=True))))

    assert after == turn


def test_the_diagram_in_the_docs_is_the_table() -> None:
    drawn = Path("docs/state-machine.md").read_text(encoding="utf-8")

    assert drawn == diagram(), "run `make diagram`"
