"""Parked threads: what is asked, which decisions are taken, and what is told around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.agent.calls import (
    THREAD,
    TURN,
    all_of,
    completed_text,
    dispatch,
    markers,
    refusal_of,
    results,
    resume,
    shown,
    texts,
    types,
)
from vystak_turns.core.facts import Refusal, StreamEnd
from vystak_turns.ports import Agent, Ended, RolledBack

if TYPE_CHECKING:
    from tests.contract.agent.conftest import Serve
    from vystak_turns.core.turn import Json


async def pending(agent: Agent) -> dict[str, Json]:
    view = await agent.view(THREAD, TURN)
    assert not view.active
    assert not view.finished
    return {q.interrupt_id: q.payload for q in view.questions}


async def test_a_parked_run_just_ends(serve: Serve) -> None:
    async with serve("two questions") as place:
        place.steps.open("ask")
        items = await all_of(place.agent, dispatch())
        questions = await pending(place.agent)

    assert items[-1] == Ended(StreamEnd.CLEAN)
    assert list(questions.values()) == ["first?"]


async def test_words_before_a_question_are_rolled_back(serve: Serve) -> None:
    async with serve("asking") as place:
        items = await all_of(place.agent, dispatch())
        (interrupt_id,) = await pending(place.agent)
        rest = await all_of(place.agent, resume(catch_up=False, decisions={interrupt_id: "yes"}))
        again = await all_of(place.agent, resume())

    assert items[-2:] == [RolledBack(markers(items)[-1]), Ended(StreamEnd.CLEAN)]
    assert not texts(items)
    assert texts([*items, *rest])[0] == "may I do it"
    assert shown([*items, *rest]) == shown(again)


async def test_a_catch_up_of_a_parked_thread_runs_nothing(serve: Serve) -> None:
    async with serve("one asks") as place:
        place.steps.open("a", "b")
        items = await all_of(place.agent, dispatch())
        again = await all_of(place.agent, resume())
        rest = await all_of(place.agent, resume(markers(items)[-1]))

    assert shown(again) == shown(items)
    assert results(items) == results(rest) == {"call-b": 1}
    assert again[-1] == rest[-1] == Ended(StreamEnd.CLEAN)
    assert place.steps.counts == {"a": 1, "b": 1}


async def test_only_exactly_the_pending_ids_are_decided(serve: Serve) -> None:
    async with serve("both ask") as place:
        place.steps.open("a", "b")
        await all_of(place.agent, dispatch())
        first, second = questions = await pending(place.agent)
        wrong: list[dict[str, object]] = [
            {first: 1},
            {second: 1},
            {"other": 1},
            {first: 1, second: 2, "other": 3},
        ]
        refusals = [await refusal_of(place.agent, resume(decisions=one)) for one in wrong]
        still = await pending(place.agent)
        rest = await all_of(
            place.agent, resume(catch_up=False, decisions={first: "x", second: "y"})
        )

    assert set(questions.values()) == {"a?", "b?"}
    assert set(refusals) == {Refusal.NOT_PENDING}
    assert still == questions
    assert results(rest) == {"call-a": 1, "call-b": 1}
    assert texts(rest) == ["both done"]


async def test_a_node_that_asks_twice_has_one_question_at_a_time(serve: Serve) -> None:
    async with serve("two questions") as place:
        place.steps.open("ask")
        await all_of(place.agent, dispatch())
        (first,) = await pending(place.agent)
        between = await all_of(place.agent, resume(catch_up=False, decisions={first: None}))
        (second,) = questions = await pending(place.agent)
        stale = await refusal_of(place.agent, resume(decisions={first: None}))
        rest = await all_of(place.agent, resume(catch_up=False, decisions={second: False}))

    assert between[-1] == Ended(StreamEnd.CLEAN)
    assert list(questions.values()) == ["second?"]
    assert first != second
    assert stale is Refusal.NOT_PENDING
    assert results(rest) == {"call-ask": 1}
    assert types(rest)[-1] == "response.completed"
    assert place.steps.counts == {"ask": 3}


async def test_what_finished_before_the_question_is_not_told_again_after_it(serve: Serve) -> None:
    async with serve("one asks") as place:
        place.steps.open("a", "b")
        items = await all_of(place.agent, dispatch())
        (question,) = await pending(place.agent)
        rest = await all_of(place.agent, resume(catch_up=False, decisions={question: 1}))

    assert results([*items, *rest]) == {"call-a": 1, "call-b": 1}
    assert results(rest) == {"call-a": 1}
    assert completed_text(rest) == "bothboth done"
    assert place.steps.counts == {"a": 2, "b": 1}


async def test_a_decision_with_a_catch_up_tells_all_before_it_once(serve: Serve) -> None:
    async with serve("one asks") as place:
        place.steps.open("a", "b")
        await all_of(place.agent, dispatch())
        (question,) = await pending(place.agent)
        whole = await all_of(place.agent, resume(decisions={question: 1}))
        again = await all_of(place.agent, resume())

    assert shown(whole) == shown(again)
    assert results(whole) == {"call-a": 1, "call-b": 1}


async def test_a_decision_for_a_finished_thread_is_refused(serve: Serve) -> None:
    async with serve("asking") as place:
        await all_of(place.agent, dispatch())
        (question,) = await pending(place.agent)
        await all_of(place.agent, resume(catch_up=False, decisions={question: 1}))
        refusal = await refusal_of(place.agent, resume(decisions={question: 1}))

    assert refusal is Refusal.NOT_PENDING


async def test_a_dispatch_on_a_parked_thread_leaves_the_question_behind(serve: Serve) -> None:
    async with serve("one asks") as place:
        place.steps.open("a", "b")
        await all_of(place.agent, dispatch())
        (old,) = await pending(place.agent)
        items = await all_of(place.agent, dispatch("turn-2", 2))
        view = await place.agent.view(THREAD, "turn-2")
        stale = await refusal_of(place.agent, resume(epoch=2, decisions={old: 1}))

    assert texts(items) == ["both"]
    assert old not in {q.interrupt_id for q in view.questions}
    assert len(view.questions) == 1
    assert stale is Refusal.NOT_PENDING
