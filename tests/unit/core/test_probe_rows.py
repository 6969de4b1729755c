"""The probe table: each row, and each pair of rows that could both fit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.support.turn_samples import (
    BOUNDARIES,
    NEXT,
    PARK,
    QUESTION,
    TOKEN,
    decided_turn,
    findings,
    probed,
    tail,
    turn_in,
    view,
)
from vystak_turns.core.effects import (
    AskApproval,
    CatchUp,
    Dispatch,
    Drain,
    Effect,
    Fail,
    Pace,
    Probe,
    Resume,
    Rewind,
)
from vystak_turns.core.findings import AgentView, Asked, Findings, Rewound, Tail, Terminal
from vystak_turns.core.probe import Row, first_fitting_row
from vystak_turns.core.transitions import step
from vystak_turns.core.turn import Boundary, Decision, Failure, Intent, Question, Turn
from vystak_turns_rpc.vocabulary import TurnState, WireStatus

LAST = BOUNDARIES[1]


def probing(**changes: object) -> Turn:
    return replace(turn_in(TurnState.PROBING), **changes)  # type: ignore[arg-type]


def effects_of(turn: Turn, found: Findings) -> tuple[Effect, ...]:
    return step(turn, probed(found))[1]


# What makes a row fit, as a change of a world in which only row 10 fits.
CAUSES: dict[Row, dict[str, object]] = {
    Row.RUN_ACTIVE: {"active": True},
    Row.NOT_STARTED: {"stamped": False},
    Row.FINISHED: {"finished": True},
    Row.GRAPH_ERROR: {"error": "it broke"},
    Row.UNDECIDED: {"questions": (Question("other", None),)},
    Row.IN_THE_MIDDLE: {},
}


@pytest.mark.parametrize("row", CAUSES)
def test_each_state_of_the_thread_has_its_row(row: Row) -> None:
    assert first_fitting_row(probing(), findings(view(**CAUSES[row]))) is row


@pytest.mark.parametrize(("upper", "lower"), list(itertools.combinations(CAUSES, 2)))
def test_of_two_rows_that_fit_the_first_is_taken(upper: Row, lower: Row) -> None:
    both = view(**(CAUSES[lower] | CAUSES[upper]))

    assert first_fitting_row(probing(), findings(both)) is upper


@pytest.mark.parametrize("row", [r for r in CAUSES if r is not Row.RUN_ACTIVE])
def test_a_wanted_end_comes_before_everything_that_would_go_on(row: Row) -> None:
    turn = replace(turn_in(TurnState.CANCELLING))

    assert first_fitting_row(turn, findings(view(**CAUSES[row]))) is Row.END_WANTED


def test_an_active_run_is_drained_before_a_wanted_end_is_carried_out() -> None:
    turn = turn_in(TurnState.CANCELLING)

    assert first_fitting_row(turn, findings(view(active=True))) is Row.RUN_ACTIVE


@pytest.mark.parametrize("answer", [None, view(active=True), view(error="it broke"), view()])
@pytest.mark.parametrize("state", [TurnState.PROBING, TurnState.CANCELLING])
def test_r1_a_terminal_event_in_the_log_comes_before_everything(
    state: TurnState, answer: AgentView | None
) -> None:
    found = findings(answer, tail(Terminal(None)))

    after, effects = step(turn_in(state), probed(found))

    assert first_fitting_row(turn_in(state), found) is Row.TERMINAL_IN_LOG
    assert after.state is TurnState.COMPLETED
    assert not effects


def test_row_1_takes_the_failure_from_the_log() -> None:
    found = findings(None, tail(Terminal(Failure("cancelled", "as asked"))))

    after, _ = step(probing(), probed(found))

    assert after.state is TurnState.CANCELLED
    assert after.failure == Failure("cancelled", "as asked")


def test_row_2_asks_again_later_and_costs_nothing() -> None:
    turn = probing(attempts=3)

    after, effects = step(turn, probed(findings(None)))

    assert after == turn
    assert effects == (Probe(Pace.LATER),)


def test_row_2_fails_a_turn_at_the_cap_whose_agent_stayed_away() -> None:
    found = replace(findings(None), waited_out=True)

    assert isinstance(effects_of(probing(attempts=3), found)[0], Fail)
    assert effects_of(probing(attempts=2), found) == (Probe(Pace.LATER),)
    assert effects_of(probing(attempts=3, free_claim=True), found) == (Probe(Pace.LATER),)


def test_row_3_drains_and_asks_again() -> None:
    assert effects_of(probing(), findings(view(active=True))) == (Drain(), Probe(Pace.LATER))


@pytest.mark.parametrize("intent", Intent)
def test_row_4_ends_the_turn_with_the_code_of_what_was_wanted(intent: Intent) -> None:
    turn = replace(turn_in(TurnState.CANCELLING), intent=intent)

    (effect,) = effects_of(turn, findings(view()))

    assert isinstance(effect, Fail)
    assert effect.failure.code == intent.value


def test_row_5_dispatches_again_and_takes_back_what_was_shown() -> None:
    after, effects = step(probing(), probed(findings(view(stamped=False))))

    assert effects == (Rewind(None), Dispatch())
    assert (after.state, after.token, after.attempts) == (TurnState.RUNNING, NEXT, 1)


def test_row_5_on_an_empty_log_rewinds_nothing() -> None:
    empty = replace(findings(view(stamped=False)), tail=None, head_seq=None, boundaries=())

    assert effects_of(probing(last_seq=-1), empty) == (Dispatch(),)


def test_row_6_brings_the_rest_and_the_terminal_event() -> None:
    found = findings(view(finished=True))
    shown_to_the_end = findings(view(finished=True), tail(seq=LAST.seq))

    assert effects_of(probing(), found) == (Rewind(LAST), Resume(catch_up=True, after=LAST))
    assert effects_of(probing(), shown_to_the_end) == (Resume(catch_up=True, after=LAST),)


def test_row_6_begins_anew_when_the_log_has_lost_its_start() -> None:
    found = replace(findings(view(finished=True)), head_seq=2)

    assert effects_of(probing(), found) == (Rewind(None), Resume(catch_up=True, after=None))


def test_a_log_that_was_begun_anew_is_whole_from_there() -> None:
    found = replace(findings(view(finished=True)), head_seq=2)

    assert effects_of(probing(origin_seq=2), found)[-1] == Resume(catch_up=True, after=LAST)


def test_a_rewind_to_the_start_whose_driver_died_is_not_appended_again() -> None:
    begun_anew = replace(tail(seq=9), what=Rewound(-1))
    found = replace(findings(view(finished=True), begun_anew), head_seq=5, boundaries=())

    after, effects = step(probing(), probed(found))

    assert effects == (Resume(catch_up=True, after=None),)
    assert after.origin_seq == 9


def test_row_7_fails_with_the_graphs_words_and_no_attempt() -> None:
    after, effects = step(probing(), probed(findings(view(error="division by zero"))))

    assert effects == (Fail(Failure("graph_error", "division by zero")),)
    assert after.attempts == 0


def test_row_8_delivers_without_a_rewind_when_the_log_ends_with_the_question() -> None:
    found = findings(view(questions=(QUESTION,)), tail(Asked(1, "i1")))

    after, effects = step(decided_turn(), probed(found))

    decisions = (Decision("i1", "yes"),)
    assert effects == (Resume(catch_up=False, after=None, decisions=decisions),)
    assert after.attempts == 0, "a first delivery is no retry"


def test_row_8_rewinds_when_something_came_after_the_question() -> None:
    found = findings(view(questions=(QUESTION,)))

    effects = effects_of(decided_turn(), found)

    decisions = (Decision("i1", "yes"),)
    assert effects == (Rewind(LAST), Resume(catch_up=True, after=LAST, decisions=decisions))


def test_row_8_catches_up_when_one_of_the_questions_has_been_used_up() -> None:
    second = Question("i2", "and this?")
    park = replace(decided_turn().park or PARK, questions=(QUESTION, second))
    found = findings(view(questions=(QUESTION,)), tail(Asked(1, "i1")))

    effects = effects_of(replace(decided_turn(), park=park), found)

    decisions = (Decision("i1", "yes"),)
    assert effects == (Rewind(LAST), Resume(catch_up=True, after=LAST, decisions=decisions))


def test_row_8_counts_from_the_second_delivery_on() -> None:
    found = findings(view(questions=(QUESTION,)), tail(Asked(1, "i1")))

    after, _ = step(replace(decided_turn(), free_claim=False), probed(found))

    assert after.attempts == 1


def test_row_8_never_delivers_a_decision_to_another_question() -> None:
    other = Question("i2", "and this?")
    found = findings(view(questions=(other,)), tail(seq=LAST.seq))

    assert first_fitting_row(decided_turn(), found) is Row.UNDECIDED
    assert effects_of(decided_turn(), found) == (CatchUp(LAST, "ck2"),)


def test_row_9_catches_up_before_it_asks() -> None:
    found = findings(view(questions=(QUESTION,)))

    assert effects_of(probing(), found) == (Rewind(LAST), CatchUp(LAST, "ck2"))


def test_row_9_asks_once_it_has_caught_up() -> None:
    found = replace(findings(view(questions=(QUESTION,))), caught_up=Boundary("ck2", 6))

    assert effects_of(probing(), found) == (AskApproval(PARK),)


@pytest.mark.parametrize("stale", [Boundary("ck1", 6), Boundary("ck2", 5)])
def test_row_9_does_not_trust_a_catch_up_of_something_else(stale: Boundary) -> None:
    found = replace(findings(view(questions=(QUESTION,))), caught_up=stale)

    assert CatchUp(LAST, "ck2") in effects_of(probing(), found)


def test_row_9_catches_up_again_when_the_log_lost_its_start_meanwhile() -> None:
    found = replace(findings(view(questions=(QUESTION,)), tail(seq=9)), head_seq=8)
    found = replace(found, caught_up=Boundary("ck2", 9))

    assert effects_of(probing(), found) == (Rewind(None), CatchUp(None, "ck2"))


def test_row_9_only_commits_when_the_log_ends_with_the_question() -> None:
    found = findings(view(questions=(QUESTION,)), tail(Asked(1, "i1")))

    after, effects = step(probing(), probed(found))

    assert (after.state, after.generation, after.park) == (TurnState.PARKED, 1, PARK)
    assert not effects


@pytest.mark.parametrize("asked", [Asked(2, "i1"), Asked(1, "i2"), Asked(None, None)])
def test_row_9_asks_again_when_the_log_ends_with_another_question(asked: Asked) -> None:
    found = findings(view(questions=(QUESTION,)), tail(asked))

    after, _ = step(probing(), probed(found))

    assert after.state is TurnState.PROBING


def test_row_9_asks_the_second_question_of_a_known_park_without_a_rewind() -> None:
    second = Question("i2", "and this?")
    park = replace(decided_turn().park or PARK, questions=(QUESTION, second))
    turn = replace(decided_turn(), park=park)
    found = findings(view(questions=(QUESTION, second)), tail(Asked(1, "i1")))

    (effect,) = effects_of(turn, found)

    assert isinstance(effect, AskApproval)
    assert (effect.park.asked, effect.park.generation) == ("i2", 2)
    assert effect.park.decisions == (Decision("i1", "yes"),)


def test_row_9_shows_everything_again_when_the_log_lost_its_start_between_two_questions() -> None:
    second = Question("i2", "and this?")
    park = replace(decided_turn().park or PARK, questions=(QUESTION, second))
    found = replace(
        findings(view(questions=(QUESTION, second)), tail(Asked(1, "i1"))), head_seq=LAST.seq
    )

    effects = effects_of(replace(decided_turn(), park=park), found)

    assert effects == (Rewind(None), CatchUp(None, "ck2"))


def test_row_9_asks_a_second_question_only_when_all_before_it_is_in_the_log() -> None:
    second = Question("i2", "and this?")
    park = replace(decided_turn().park or PARK, questions=(QUESTION, second))
    turn = replace(decided_turn(), park=park, origin_seq=9)
    begun_anew = replace(
        findings(view(questions=(QUESTION, second)), replace(tail(seq=9), what=Rewound(-1))),
        boundaries=(),
        head_seq=9,
    )

    assert effects_of(turn, begun_anew) == (CatchUp(None, "ck2"),)


def test_row_10_says_where_the_turn_goes_on_and_continues() -> None:
    after, effects = step(probing(), probed(findings(view())))

    assert effects == (Rewind(LAST), Resume(catch_up=True, after=LAST))
    assert (after.attempts, after.claimed_checkpoint) == (1, "ck2")


def test_row_10_does_not_repeat_a_rewind_that_the_log_ends_with() -> None:
    rewound = Tail(66, 6, TOKEN - 1, None, Rewound(LAST.seq))

    assert effects_of(probing(), findings(view(), rewound)) == (Resume(catch_up=True, after=LAST),)


def test_a_boundary_that_the_log_has_forgotten_is_not_used() -> None:
    found = replace(findings(view()), head_seq=5)

    assert effects_of(probing(), found) == (Rewind(None), Resume(catch_up=True, after=None))


def test_a_boundary_above_the_end_of_a_log_that_lost_its_last_messages_is_not_used() -> None:
    found = findings(view(), tail(seq=LAST.seq - 1))

    assert effects_of(probing(), found)[0] == Rewind(BOUNDARIES[0])


def test_a_log_that_was_lost_is_begun_anew() -> None:
    found = replace(findings(view()), tail=None, head_seq=None)

    assert effects_of(probing(), found) == (Rewind(None), Resume(catch_up=True, after=None))


def test_r9_the_cap_ends_a_turn_that_makes_no_progress() -> None:
    turn = probing(attempts=3, claimed_checkpoint="ck2")

    (effect,) = effects_of(turn, findings(view()))

    assert isinstance(effect, Fail)
    assert effect.failure.code == "attempts_exhausted"


def test_progress_since_the_last_claim_starts_the_count_again() -> None:
    turn = probing(attempts=3, claimed_checkpoint="ck1", redrives=3)

    after, _ = step(turn, probed(findings(view())))

    assert (after.attempts, after.redrives, after.claimed_checkpoint) == (1, 4, "ck2")


def test_r12_a_free_claim_passes_the_cap() -> None:
    turn = probing(attempts=3, claimed_checkpoint="ck2", free_claim=True)

    after, effects = step(turn, probed(findings(view())))

    assert (after.attempts, after.free_claim) == (3, False)
    assert isinstance(effects[-1], Resume)


@pytest.mark.parametrize(("catches_up", "target"), [(False, BOUNDARIES[0]), (True, BOUNDARIES[1])])
def test_r3_readers_go_back_to_where_an_agent_that_does_not_catch_up_goes_on(
    catches_up: bool, target: Boundary
) -> None:
    """It lost its newest checkpoint although it had told of it: the step is done again."""
    older = view(checkpoint_id="ck1", catches_up=catches_up)

    _, effects = step(probing(), probed(findings(older)))

    assert effects[0] == Rewind(target)


UNSTAMPED: dict[str, object] = {"stamped": False, "epoch": None}


@pytest.mark.parametrize(
    ("adopted_as", "boundaries", "causes", "row"),
    [
        (WireStatus.RUNNING, (), {}, Row.IN_THE_MIDDLE),
        (WireStatus.RUNNING, BOUNDARIES, {"finished": True}, Row.FINISHED),
        (WireStatus.RUNNING, (), {"finished": True}, Row.NOT_STARTED),
        (WireStatus.RUNNING, BOUNDARIES, {"questions": (QUESTION,)}, Row.UNDECIDED),
        (WireStatus.RUNNING, (), {"questions": (QUESTION,)}, Row.NOT_STARTED),
        (WireStatus.PARKED, (), {"questions": (QUESTION,)}, Row.UNDECIDED),
        (WireStatus.RUNNING, BOUNDARIES, {"checkpoint_id": None}, Row.NOT_STARTED),
        (WireStatus.RUNNING, BOUNDARIES, {"epoch": 3}, Row.NOT_STARTED),
        (None, BOUNDARIES, {}, Row.NOT_STARTED),
    ],
)
def test_a_thread_without_stamps_is_an_adopted_turns_where_it_shows_that_it_began(
    adopted_as: WireStatus | None,
    boundaries: tuple[Boundary, ...],
    causes: dict[str, object],
    row: Row,
) -> None:
    found = replace(findings(view(**{**UNSTAMPED, **causes})), boundaries=boundaries)

    assert first_fitting_row(probing(adopted_as=adopted_as), found) is row
