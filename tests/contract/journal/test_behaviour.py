"""What every implementation of `ports.Journal` does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.journals import a_turn
from vystak_turns.core.turn import (
    Boundary,
    Claim,
    Decision,
    Failure,
    Intent,
    Park,
    Question,
    Turn,
)
from vystak_turns.ports import BoundaryChange
from vystak_turns_rpc.vocabulary import ENDED, FailureCode, TurnState

if TYPE_CHECKING:
    from vystak_turns.ports import Journal

REQUEST = {"input": "hello", "nothing": None, "odd": ["\ud800", 1.5, {}]}
PARK = Park(
    checkpoint_id="ck2",
    generation=3,
    asked="i2",
    questions=(Question("i1", {"tool": "a"}), Question("i2", None)),
    decisions=(Decision("i1", False),),
)
FULL = a_turn(
    updated_at_s=200.5,
    state=TurnState.PARKED,
    token=17,
    attempts=2,
    redrives=5,
    claimed_checkpoint="ck1",
    claim=Claim.COUNTED,
    free_claim=True,
    last_seq=40,
    boundary_seq=39,
    seq_limit=1000,
    origin_seq=7,
    generation=3,
    park=PARK,
    intent=Intent.CANCELLED,
    failure=Failure(FailureCode.CANCELLED, "stopped"),
)


async def test_a_created_turn_reads_back_as_it_was_given(journal: Journal) -> None:
    turn = a_turn()

    await journal.create(turn, REQUEST, None)

    assert await journal.get("t1") == turn
    assert await journal.request("t1") == REQUEST
    assert await journal.boundaries("t1") == ()


@pytest.mark.parametrize("state", list(TurnState))
async def test_every_field_survives_a_save_in_every_state(
    journal: Journal, state: TurnState
) -> None:
    await journal.create(a_turn(), REQUEST, None)
    full = replace(FULL, state=state)

    await journal.save(full)

    assert await journal.get("t1") == full


async def test_an_unknown_turn_reads_as_nothing(journal: Journal) -> None:
    assert await journal.get("nobody") is None
    assert await journal.request("nobody") is None
    assert await journal.boundaries("nobody") == ()
    assert journal.open_on_thread("helper", "resp_nobody") is None


async def test_a_second_create_changes_nothing(journal: Journal) -> None:
    first = a_turn(attempts=2, last_seq=9)
    other = a_turn("t0")
    await journal.create(other, {}, None)
    await journal.create(first, REQUEST, None)
    rival = a_turn(stream_subject="elsewhere", thread_id="resp_other")

    await journal.create(rival, {"input": "other"}, replace(other, intent=Intent.SUPERSEDED))

    assert await journal.get("t1") == first
    assert await journal.request("t1") == REQUEST
    assert await journal.get("t0") == other
    assert journal.open_on_thread("helper", "resp_other") is None


async def test_changes_to_an_unknown_turn_are_silently_nothing(journal: Journal) -> None:
    await journal.save(a_turn(), BoundaryChange(record=Boundary("ck1", 3)))

    assert await journal.get("t1") is None
    assert await journal.boundaries("t1") == ()
    assert journal.unfinished() == ()


async def test_a_changed_request_changes_nothing_stored(journal: Journal) -> None:
    await journal.create(a_turn(), REQUEST, None)
    (await journal.request("t1"))["input"] = "changed"

    assert await journal.request("t1") == REQUEST


async def test_only_turns_that_have_not_ended_are_unfinished_in_order_of_creation(
    journal: Journal,
) -> None:
    states = list(TurnState)
    for number, state in enumerate(states):
        await journal.create(a_turn(f"t{number}", created_at_s=100.0 + number), {}, None)
        await journal.save(a_turn(f"t{number}", created_at_s=100.0 + number, state=state))

    unfinished = journal.unfinished()

    assert [t.state for t in unfinished] == [s for s in states if s not in ENDED]
    for number, state in enumerate(states):
        turn = await journal.get(f"t{number}")
        assert turn is not None
        assert turn.state is state


async def test_attempts_are_stored_as_they_grow(journal: Journal) -> None:
    await journal.create(a_turn(), {}, None)
    for attempts in (1, 2):
        await journal.save(a_turn(attempts=attempts))
        turn = await journal.get("t1")
        assert turn is not None
        assert turn.attempts == attempts


async def test_boundaries_are_recorded_oldest_first(journal: Journal) -> None:
    await _with_boundaries(journal, ("b", 3), ("a", 8), ("c", 8))

    assert await journal.boundaries("t1") == (
        Boundary("b", 3),
        Boundary("a", 8),
        Boundary("c", 8),
    )


async def test_a_boundary_recorded_again_has_its_new_seq(journal: Journal) -> None:
    await _with_boundaries(journal, ("a", 3), ("b", 5), ("a", 8))

    assert await journal.boundaries("t1") == (Boundary("b", 5), Boundary("a", 8))


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ("a", ["a"]),
        ("b", ["a", "b"]),
        ("c", ["a", "b", "c"]),
        ("d", ["a", "b", "c", "d"]),
        (None, []),
        ("unknown", []),
    ],
)
async def test_a_cut_deletes_what_is_newer_also_at_the_same_seq(
    journal: Journal, keep: str | None, left: list[str]
) -> None:
    turn = await _with_boundaries(journal, ("a", 3), ("b", 5), ("c", 5), ("d", 9))

    await journal.save(turn, BoundaryChange(cut=True, keep=keep))

    assert [b.checkpoint_id for b in await journal.boundaries("t1")] == left


async def test_a_cut_to_the_boundary_that_comes_with_it_keeps_that_one(journal: Journal) -> None:
    turn = await _with_boundaries(journal, ("a", 3), ("b", 9))

    await journal.save(turn, BoundaryChange(record=Boundary("n", 5), cut=True, keep="n"))

    assert await journal.boundaries("t1") == (Boundary("a", 3), Boundary("n", 5))


async def test_a_cut_leaves_other_turns_alone(journal: Journal) -> None:
    turn = await _with_boundaries(journal, ("a", 3))
    await journal.create(a_turn("t2"), {}, None)
    await journal.save(a_turn("t2"), BoundaryChange(record=Boundary("a", 4)))

    await journal.save(turn, BoundaryChange(cut=True))

    assert await journal.boundaries("t1") == ()
    assert await journal.boundaries("t2") == (Boundary("a", 4),)


async def test_the_turn_that_holds_a_thread_is_found_until_it_ends(journal: Journal) -> None:
    turn = a_turn(thread_id="resp_x")
    await journal.create(turn, {}, None)
    assert journal.open_on_thread("helper", "resp_x") == turn
    assert journal.open_on_thread("other agent", "resp_x") is None

    await journal.save(replace(turn, state=TurnState.COMPLETED))

    assert journal.open_on_thread("helper", "resp_x") is None


async def test_a_superseding_is_committed_with_the_new_turn(journal: Journal) -> None:
    old = a_turn("old", thread_id="resp_x")
    new = a_turn("new", thread_id="resp_x")
    await journal.create(old, {}, None)
    superseded = replace(old, intent=Intent.SUPERSEDED, state=TurnState.CANCELLING)

    await journal.create(new, {}, superseded)

    assert journal.open_on_thread("helper", "resp_x") == new
    assert journal.blocking_thread("helper", "resp_x", "new") == superseded
    assert journal.blocking_thread("helper", "resp_x", "old") == new
    assert await journal.get("old") == superseded

    await journal.save(replace(superseded, state=TurnState.FAILED))
    assert journal.blocking_thread("helper", "resp_x", "new") is None


async def test_memory_shows_a_turn_only_once_it_is_committed(journal: Journal) -> None:
    turn = a_turn(thread_id="resp_x")
    creating = asyncio.ensure_future(journal.create(turn, {}, None))
    assert journal.open_on_thread("helper", "resp_x") is None
    assert journal.unfinished() == ()

    await creating

    assert journal.open_on_thread("helper", "resp_x") == turn


async def test_each_token_is_larger_than_all_before(journal: Journal) -> None:
    first = journal.new_token()
    assert journal.new_token() == first + 1
    assert journal.new_token(at_least=first + 100) == first + 100
    assert journal.new_token(at_least=5) == first + 101


async def test_of_many_writers_all_are_committed_in_the_order_of_their_calls(
    journal: Journal,
) -> None:
    turns = [a_turn(f"t{n:03}") for n in range(200)]
    async with asyncio.TaskGroup() as group:
        for turn in turns:
            group.create_task(journal.create(turn, {"n": turn.turn_id}, None))
    async with asyncio.TaskGroup() as group:
        for last_seq in range(5):
            for turn in turns:
                group.create_task(journal.save(replace(turn, last_seq=last_seq)))

    assert journal.unfinished() == tuple(replace(turn, last_seq=4) for turn in turns)


async def test_a_caller_that_gives_up_does_not_stop_the_others(journal: Journal) -> None:
    tasks = [asyncio.ensure_future(journal.create(a_turn(f"t{n}"), {}, None)) for n in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()

    await asyncio.gather(tasks[0], tasks[2])
    await journal.save(a_turn("t2", last_seq=1))

    ids = {turn.turn_id for turn in journal.unfinished()}
    assert {"t0", "t2"} <= ids


async def _with_boundaries(journal: Journal, *pairs: tuple[str, int]) -> Turn:
    turn = a_turn()
    await journal.create(turn, {}, None)
    for checkpoint_id, seq in pairs:
        turn = replace(turn, boundary_seq=seq)
        await journal.save(turn, BoundaryChange(record=Boundary(checkpoint_id, seq)))
    return turn
