"""What the persister expects of a panel's store; a panel with another one runs these as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from vystak_turns_client.fold import Approval
from vystak_turns_client.persister_sqlite import SqliteStorage
from vystak_turns_client.storage import ActiveTurn, MessageRow, RowState

TURN = ActiveTurn("c1", "t1", "vystak.default.streams.c1.t1")
NEXT = ActiveTurn("c1", "t2", "vystak.default.streams.c1.t2")
TEXT = ({"type": "text", "text": "a\x00é\U0001f600"},)


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[SqliteStorage]:
    ticks = iter(range(1000))
    async with SqliteStorage(tmp_path / "panel.db", lambda: float(next(ticks))) as opened:
        await opened.create_conversation("c1", "first")
        await opened.begin_turn(TURN, "hello")
        yield opened


def row(state: RowState, content: str = "a", error: str | None = None) -> MessageRow:
    return MessageRow(TURN, content, TEXT, state, error)


async def active_turn(storage: SqliteStorage) -> ActiveTurn | None:
    conversation = await storage.conversation("c1")
    assert conversation is not None
    return conversation.active_turn


async def test_a_turn_has_one_row_however_often_it_is_saved(storage: SqliteStorage) -> None:
    assert await storage.row("t1") is None
    for state in (RowState.PARKED, RowState.RUNNING, RowState.ERROR, RowState.DONE):
        await storage.save_row(row(state, error=state))
        assert await storage.row("t1") == row(state, error=state)
    assert [(m.role, m.content) for m in await storage.messages("c1")] == [
        ("user", "hello"),
        ("assistant", "a"),
    ]


async def test_a_final_row_is_replaced_by_a_final_one_only(storage: SqliteStorage) -> None:
    await storage.save_row(row(RowState.DONE, "whole"))
    for state in (RowState.PARKED, RowState.RUNNING, RowState.ERROR):
        await storage.save_row(row(state, "part"))
    assert await storage.row("t1") == row(RowState.DONE, "whole")
    await storage.save_row(row(RowState.DONE, "again"))
    assert await storage.row("t1") == row(RowState.DONE, "again")


async def test_many_who_save_at_once_leave_one_row(storage: SqliteStorage) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(storage.save_row(row(RowState.RUNNING, str(number))))
    assert len(await storage.messages("c1")) == 2


async def test_an_ended_turn_is_active_no_more(storage: SqliteStorage) -> None:
    assert (await active_turn(storage), await storage.active_turns()) == (TURN, [TURN])
    await storage.clear_active_turn(TURN)
    await storage.clear_active_turn(TURN)
    assert (await active_turn(storage), await storage.active_turns()) == (None, [])


async def test_a_newer_turn_stays_active_when_the_older_one_ends(storage: SqliteStorage) -> None:
    await storage.set_pending_approval(TURN, Approval("?", None, None))
    await storage.begin_turn(NEXT, "never mind")
    assert await storage.active_turns() == [TURN, NEXT]
    await storage.clear_active_turn(TURN)
    assert (await active_turn(storage), await storage.active_turns()) == (NEXT, [NEXT])


async def test_a_turn_at_rest_stays_active_but_needs_no_persister(storage: SqliteStorage) -> None:
    assert not await storage.wake(TURN)
    await storage.put_to_rest(TURN)
    assert (await active_turn(storage), await storage.active_turns()) == (TURN, [])
    assert await storage.unsettled_turns("c1") == [TURN]
    assert await storage.wake(TURN)
    assert (await storage.active_turns(), await storage.unsettled_turns("c1")) == ([TURN], [])


async def test_a_turn_that_was_given_up_is_unsettled_until_it_is_cleared(
    storage: SqliteStorage,
) -> None:
    await storage.give_up(TURN)
    assert (await active_turn(storage), await storage.active_turns()) == (None, [])
    assert await storage.unsettled_turns("c1") == [TURN]
    assert await storage.unsettled_turns("c2") == []
    assert not await storage.wake(TURN)
    await storage.clear_active_turn(TURN)
    assert await storage.unsettled_turns("c1") == []


async def test_an_ended_turn_neither_rests_nor_is_given_up(storage: SqliteStorage) -> None:
    await storage.clear_active_turn(TURN)
    await storage.put_to_rest(TURN)
    await storage.give_up(TURN)
    assert await storage.unsettled_turns("c1") == []


async def test_a_question_is_kept_until_it_is_none(storage: SqliteStorage) -> None:
    assert await storage.pending_approval("t1") is None
    for approval in (Approval({"tool": "rm"}, 2, "i1"), Approval(None, None, None)):
        await storage.set_pending_approval(TURN, approval)
        assert await storage.pending_approval("t1") == approval
    await storage.set_pending_approval(TURN, None)
    assert await storage.pending_approval("t1") is None


async def test_the_thread_of_a_conversation_is_kept(storage: SqliteStorage) -> None:
    await storage.set_last_response_id("c1", "resp_1")
    conversation = await storage.conversation("c1")
    assert conversation is not None
    assert conversation.last_response_id == "resp_1"


async def test_everything_is_there_after_the_store_was_opened_anew(
    storage: SqliteStorage, tmp_path: Path
) -> None:
    await storage.save_row(row(RowState.PARKED))
    async with SqliteStorage(tmp_path / "panel.db", lambda: 0.0) as second:
        assert await second.row("t1") == row(RowState.PARKED)
        assert await second.active_turns() == [TURN]


async def test_a_second_turn_is_refused_while_the_first_one_runs(storage: SqliteStorage) -> None:
    with pytest.raises(ValueError, match="t1 of this conversation has not ended"):
        await storage.begin_turn(NEXT, "more")
    assert [m.content for m in await storage.messages("c1")] == ["hello"]
    assert await active_turn(storage) == TURN


async def test_a_turn_that_is_begun_twice_is_there_once(storage: SqliteStorage) -> None:
    await storage.begin_turn(TURN, "hello")
    assert [m.content for m in await storage.messages("c1")] == ["hello"]


async def test_conversations_are_listed_the_latest_first_with_their_titles(
    storage: SqliteStorage,
) -> None:
    await storage.create_conversation("c2", "second")
    await storage.create_conversation("c2", "again")
    await storage.rename("c1", "renamed")
    assert [(c.conversation_id, c.title) for c in await storage.conversations()] == [
        ("c2", "second"),
        ("c1", "renamed"),
    ]
    assert await storage.conversation("c3") is None


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await SqliteStorage(tmp_path / "panel.db", lambda: 0.0).active_turns()
