"""What outlives the death of the agent's process, and what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.agent.calls import (
    THREAD,
    TURN,
    all_of,
    dispatch,
    idle,
    markers,
    refusal_of,
    rest_of,
    results,
    resume,
    shown,
    up_to_marker,
)
from vystak_turns.core.facts import Refusal, StreamEnd
from vystak_turns.ports import Ended

if TYPE_CHECKING:
    from tests.contract.agent.conftest import Serve


async def test_committed_steps_are_kept_and_the_one_in_flight_runs_again(
    serve_mortal: Serve,
) -> None:
    async with serve_mortal("plain") as place:
        place.steps.open("ask", "look")
        async with place.agent.run(dispatch(epoch=4)) as items:
            seen = await up_to_marker(items, 3)
            await place.steps.reached("answer")
            await place.die_and_come_back()
            end = await rest_of(items)
        view = await idle(place.agent)
        place.steps.open("answer")
        stale = await refusal_of(place.agent, resume(epoch=3))
        rest = await all_of(place.agent, resume(markers(seen)[-1], epoch=5))
        again = await all_of(place.agent, resume(epoch=5))

    assert end[-1] == Ended(StreamEnd.LOST)
    assert (view.checkpoint_id, view.stamped, view.finished) == (markers(seen)[-1], True, False)
    assert view.epoch == 4
    assert stale is Refusal.STALE_EPOCH
    assert shown([*seen, *rest]) == shown(again)
    assert place.steps.counts == {"ask": 1, "look": 1, "answer": 2}


async def test_a_finished_branch_of_the_step_in_flight_is_kept(serve_mortal: Serve) -> None:
    async with serve_mortal("parallel") as place:
        place.steps.open("a")
        async with place.agent.run(dispatch()) as items:
            seen = await up_to_marker(items, 2)
            await place.steps.reached("b")
            told = [*seen]
            async for item in items:
                told.append(item)
                if results(told):
                    break
            await place.die_and_come_back()
        view = await place.agent.view(THREAD, TURN)
        place.steps.open("b")
        rest = await all_of(place.agent, resume(markers(seen)[-1]))
        again = await all_of(place.agent, resume())

    assert not view.finished
    assert results(rest) == {"call-a": 1, "call-b": 1}
    assert shown(again) == shown([*seen, *rest])
    assert place.steps.counts == {"a": 1, "b": 2}


async def test_an_unanswered_question_is_asked_still(serve_mortal: Serve) -> None:
    async with serve_mortal("two_questions") as place:
        place.steps.open("told yes")
        await all_of(place.agent, dispatch())
        before = await place.agent.view(THREAD, TURN)
        await place.die_and_come_back()
        after = await place.agent.view(THREAD, TURN)
        (question,) = after.questions
        await all_of(place.agent, resume(catch_up=False, decisions={question.interrupt_id: "yes"}))
        later = await place.agent.view(THREAD, TURN)

    assert before == after
    assert question.payload == "first?"
    assert [q.payload for q in later.questions] == ["second?"]
