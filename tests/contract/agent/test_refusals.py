"""Calls that the agent does not take, each for its reason; nothing is changed by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.agent.calls import (
    THREAD,
    TURN,
    all_of,
    dispatch,
    refusal_of,
    rest_of,
    resume,
    types,
)
from vystak_turns.core.facts import Refusal

if TYPE_CHECKING:
    from tests.contract.agent.conftest import Serve

NOWHERE = "1f000000-0000-6000-8000-000000000000"


async def test_a_resume_of_an_unseen_thread_is_refused(serve: Serve) -> None:
    async with serve("plain") as place:
        assert await refusal_of(place.agent, resume()) is Refusal.UNKNOWN_THREAD


async def test_an_unknown_checkpoint_is_refused(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        await all_of(place.agent, dispatch())
        assert await refusal_of(place.agent, resume(NOWHERE)) is Refusal.UNKNOWN_CHECKPOINT


async def test_while_a_run_is_active_every_other_call_is_refused(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask")
        async with place.agent.run(dispatch()) as items:
            await place.steps.reached("look")
            busy = [
                await refusal_of(place.agent, call)
                for call in (resume(), dispatch(), dispatch("turn-2", 2), resume(epoch=3))
            ]
            place.steps.open("look", "answer")
            rest = await rest_of(items)

    assert set(busy) == {Refusal.BUSY}
    assert types(rest)[-1] == "response.completed", "the run was not disturbed"


async def test_a_lower_epoch_is_refused(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        await all_of(place.agent, dispatch(epoch=5))
        for call in (resume(epoch=4), dispatch("turn-2", 4)):
            assert await refusal_of(place.agent, call) is Refusal.STALE_EPOCH


async def test_a_refused_call_and_a_drain_raise_the_epoch_as_well(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask")
        async with place.agent.run(dispatch()) as items:
            await place.steps.reached("look")
            assert await refusal_of(place.agent, resume(epoch=3)) is Refusal.BUSY
            assert await refusal_of(place.agent, resume(epoch=2)) is Refusal.STALE_EPOCH
            await place.agent.drain(THREAD, TURN, 5)
            assert await refusal_of(place.agent, resume(epoch=4)) is Refusal.STALE_EPOCH
            place.steps.open("look", "answer")
            await rest_of(items)


async def test_an_input_is_taken_once(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        await all_of(place.agent, dispatch())
        assert await refusal_of(place.agent, dispatch(epoch=2)) is Refusal.NOT_PENDING


async def test_a_turn_that_is_not_the_threads_last_is_not_resumed(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        await all_of(place.agent, dispatch())
        await all_of(place.agent, dispatch("turn-2", 2))
        assert await refusal_of(place.agent, resume(epoch=3)) is Refusal.NOT_PENDING
