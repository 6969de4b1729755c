"""What a run tells, in which order, and what is left of it for a catch-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.agent.calls import (
    THREAD,
    TURN,
    all_of,
    completed_text,
    dispatch,
    idle,
    markers,
    rest_of,
    results,
    resume,
    shown,
    texts,
    told,
    types,
    up_to_marker,
)
from vystak_turns.core.facts import StreamEnd
from vystak_turns.ports import Ended, Marker, RolledBack

if TYPE_CHECKING:
    from tests.contract.agent.conftest import Serve


async def test_an_unseen_thread_has_nothing(serve: Serve) -> None:
    async with serve("plain") as place:
        view = await place.agent.view(THREAD, TURN)
        assert await place.agent.healthy()

    assert (view.checkpoint_id, view.stamped, view.active, view.finished) == (
        None,
        False,
        False,
        False,
    )
    assert (view.error, view.questions, view.epoch) == (None, (), None)


async def test_a_turn_begins_with_created_and_ends_with_its_whole_text(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        items = await all_of(place.agent, dispatch(epoch=7))
        mine, others = await place.agent.view(THREAD, TURN), await place.agent.view(THREAD, "x")

    assert types(items)[0] == "response.created"
    assert texts(items) == ["let me look", "all is done"]
    assert results(items) == {"call-look": 1}
    assert completed_text(items) == "let me lookall is done"
    assert (mine.stamped, mine.finished, mine.active, mine.epoch) == (True, True, False, 7)
    assert (others.stamped, others.finished) == (False, True)


async def test_a_marker_comes_after_its_steps_events_and_before_the_nexts(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        items = await all_of(place.agent, dispatch())

    parts: list[list[str]] = [[]]
    for item in items:
        parts.append([]) if isinstance(item, Marker) else parts[-1].extend(types([item]))
    created, ask, look, answer, end = parts
    assert created == ["response.created"]
    assert ask[0] == "response.output_text.delta"
    assert ask[-1] == "response.function_call_arguments.done"
    assert look == ["response.output_item.added"]
    assert answer[-1] == "response.output_text.done"
    assert end == ["response.completed"]
    assert len(set(markers(items))) == 4


async def test_a_marker_is_shown_once_its_checkpoint_is_kept(serve: Serve) -> None:
    async with serve("plain") as place, place.agent.run(dispatch()) as items:
        place.steps.open("ask")
        seen = await up_to_marker(items, 2)
        view = await place.agent.view(THREAD, TURN)
        place.steps.open("look", "answer")
        await rest_of(items)

    assert view.checkpoint_id == markers(seen)[-1]
    assert (view.active, view.finished) == (True, False)


async def test_catch_up_from_every_boundary_brings_exactly_the_rest(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        whole = await all_of(place.agent, dispatch())
        rests = {after: await all_of(place.agent, resume(after)) for after in markers(whole)}

    for after, rest in rests.items():
        before = whole[: whole.index(Marker(after)) + 1]
        assert shown([*before, *rest]) == shown(whole)
        assert markers([*before, *rest]) == markers(whole)
        assert completed_text(rest) == completed_text(whole), "the whole turn's text"


async def test_catch_up_from_the_start_brings_everything(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        whole = await all_of(place.agent, dispatch())
        again = await all_of(place.agent, resume())

    assert shown(again) == shown(whole)
    assert markers(again) == markers(whole)
    assert place.steps.counts == {"ask": 1, "look": 1, "answer": 1}


async def test_a_run_outlives_its_reader(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask")
        async with place.agent.run(dispatch()) as items:
            seen = await up_to_marker(items, 2)
        assert (await place.agent.view(THREAD, TURN)).active
        place.steps.open("look", "answer")
        view = await idle(place.agent)
        rest = await all_of(place.agent, resume(markers(seen)[-1]))

    assert view.finished
    assert texts([*seen, *rest]) == ["let me look", "all is done"]
    assert results([*seen, *rest]) == {"call-look": 1}
    assert place.steps.counts == {"ask": 1, "look": 1, "answer": 1}


async def test_a_drained_run_finishes_its_step_and_says_so(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask")
        async with place.agent.run(dispatch()) as items:
            await up_to_marker(items, 2)
            await place.steps.reached("look")
            await place.agent.drain(THREAD, TURN, 1)
            place.steps.open("look")
            rest = await rest_of(items)
        view = await idle(place.agent)

    assert results(rest) == {"call-look": 1}
    assert isinstance(rest[-2], Marker)
    assert rest[-1] == Ended(StreamEnd.DRAINED)
    assert (view.finished, view.questions, view.error) == (False, (), None)


async def test_a_drained_thread_goes_on_where_it_was(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look")
        async with place.agent.run(dispatch()) as items:
            await place.steps.reached("answer")
            await place.agent.drain(THREAD, TURN, 2)
            await place.agent.drain(THREAD, TURN, 2)
            place.steps.open("answer")
            first = await rest_of(items)
        rest = await all_of(place.agent, resume(markers(first)[-1], epoch=3))

    assert texts([*first, *rest]) == ["let me look", "all is done"]
    assert place.steps.counts == {"ask": 1, "look": 1, "answer": 1}
    assert types(rest)[-1] == "response.completed"


async def test_an_older_drain_stops_nothing(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask")
        async with place.agent.run(dispatch(epoch=5)) as items:
            await place.steps.reached("look")
            await place.agent.drain(THREAD, TURN, 4)
            place.steps.open("look", "answer")
            rest = await rest_of(items)

    assert types(rest)[-1] == "response.completed"


async def test_a_drain_of_an_idle_thread_changes_nothing_but_the_epoch(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        await place.agent.drain(THREAD, TURN, 3)
        unseen = await place.agent.view(THREAD, TURN)
        items = await all_of(place.agent, dispatch(epoch=3))

    assert unseen.checkpoint_id is None
    assert types(items)[-1] == "response.completed"


async def test_finished_branches_of_an_unfinished_step_are_told_and_not_run_again(
    serve: Serve,
) -> None:
    async with serve("parallel") as place:
        place.steps.open("a")
        async with place.agent.run(dispatch()) as items:
            seen = await up_to_marker(items, 2)
            await place.steps.reached("b")
            async for item in items:
                seen.append(item)
                if results(seen):
                    break
            await place.agent.drain(THREAD, TURN, 1)
            place.steps.open("b")
            seen += await rest_of(items)
        rest = await all_of(place.agent, resume(markers(seen)[-1]))
        again = await all_of(place.agent, resume())

    assert results([*seen, *rest]) == {"call-a": 1, "call-b": 1}
    assert shown(again) == shown([*seen, *rest])
    assert place.steps.counts == {"a": 1, "b": 1}


async def test_a_nested_graphs_messages_appear_when_the_outer_step_commits(serve: Serve) -> None:
    async with serve("nested") as place:
        place.steps.open("one", "two")
        items = await all_of(place.agent, dispatch())
        again = await all_of(place.agent, resume())

    assert texts(items) == ["inside"]
    assert len(markers(items)) == 2
    assert shown(again) == shown(items)


async def test_words_that_are_not_kept_are_rolled_back(serve: Serve) -> None:
    async with serve("private") as place:
        items = await all_of(place.agent, dispatch())
        again = await all_of(place.agent, resume())

    assert RolledBack(markers(items)[0]) in items
    assert texts(items) == ["hello"]
    assert shown(again) == shown(items)
    assert completed_text(items) == "hello"


async def test_replaced_and_removed_messages_stay_as_they_were_first(serve: Serve) -> None:
    async with serve("replaced") as place:
        items = await all_of(place.agent, dispatch())
        again = await all_of(place.agent, resume())

    assert texts(items) == texts(again) == ["first words"]
    assert len(markers(items)) == 4


async def test_the_graphs_own_error_fails_the_turn_now_and_later(serve: Serve) -> None:
    async with serve("failing") as place:
        items = await all_of(place.agent, dispatch())
        view = await place.agent.view(THREAD, TURN)
        again = await all_of(place.agent, resume())

    assert types(items)[-1] == types(again)[-1] == "response.failed"
    assert texts(told(items)) == texts(again) == ["I try"]
    assert view.error == "ValueError: no such file"
    assert not view.finished


async def test_a_second_turn_of_a_thread_shows_only_its_own(serve: Serve) -> None:
    async with serve("plain") as place:
        place.steps.open("ask", "look", "answer")
        first = await all_of(place.agent, dispatch())
        second = await all_of(place.agent, dispatch("turn-2", 2))
        mine, others = (
            await place.agent.view(THREAD, "turn-2"),
            await place.agent.view(THREAD, TURN),
        )
        again = await all_of(place.agent, resume(turn_id="turn-2", epoch=2))

    assert not set(markers(first)) & set(markers(second))
    assert not set(shown(first)[0]) & set(shown(second)[0])
    assert shown(again) == shown(second)
    assert mine.stamped
    assert others.stamped
    assert mine.epoch == 2


async def test_a_turn_after_a_failed_one_runs(serve: Serve) -> None:
    async with serve("failing") as place:
        await all_of(place.agent, dispatch())
        items = await all_of(place.agent, dispatch("turn-2", 2))
        view = await place.agent.view(THREAD, "turn-2")

    assert texts(items) == ["I try"]
    assert view.stamped
