"""The panel's loop against a scripted log, a scripted turn control and a clock of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_log import (
    FakeClock,
    ScriptedLog,
    ScriptedStatus,
    status,
    unreachable,
)
from tests.support.turn_events import (
    COMPLETED,
    CREATED,
    FAILED,
    asks,
    called,
    delta,
    result,
    rewind,
)
from vystak_turns_client.fold import Approval
from vystak_turns_client.persister import Conclusion, Finding, Persister
from vystak_turns_client.persister_sqlite import Message, SqliteStorage
from vystak_turns_client.storage import ActiveTurn, RowState
from vystak_turns_rpc import events
from vystak_turns_rpc.envelope import ProtocolError
from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.methods import TurnStatusResult

TURN = ActiveTurn("c1", "t1", "vystak.default.streams.c1.t1")
RUNNING = status("running")
PARKED = status("parked")

Says = Callable[[float], TurnStatusResult | Exception]


class Panel:
    """A panel with one active turn, whose turn control says one thing."""

    def __init__(self, storage: SqliteStorage) -> None:
        self.storage = storage
        self.clock = FakeClock()
        self.log = ScriptedLog(self.clock)
        self.status = ScriptedStatus(self.log, lambda _: RUNNING)

    def says(self, says: Says | TurnStatusResult | Exception) -> None:
        self.status.says = says if callable(says) else lambda _: says

    def persister(self) -> Persister:
        return Persister(self.storage, self.log, self.status, self.clock)

    async def run(self) -> Conclusion:
        return await self.persister().run(TURN)

    async def rows(self) -> list[Message]:
        return [row for row in await self.storage.messages("c1") if row.role == "assistant"]

    async def row(self) -> Message:
        (row,) = await self.rows()
        return row

    async def active_turn(self) -> ActiveTurn | None:
        conversation = await self.storage.conversation("c1")
        assert conversation is not None
        return conversation.active_turn

    async def response_id(self) -> str | None:
        conversation = await self.storage.conversation("c1")
        assert conversation is not None
        return conversation.last_response_id


@pytest.fixture
async def panel(tmp_path: Path) -> AsyncIterator[Panel]:
    async with SqliteStorage(tmp_path / "panel.db", lambda: 1.0) as storage:
        await storage.create_conversation("c1", "first")
        await storage.begin_turn(TURN, "hello")
        yield Panel(storage)


async def test_a_completed_turn_leaves_one_row_and_its_thread_and_is_active_no_more(
    panel: Panel,
) -> None:
    panel.log.say(0, CREATED, delta("he"), delta("llo"), COMPLETED)

    assert await panel.run() is Conclusion.DONE

    row = await panel.row()
    assert (row.turn_id, row.content, row.state) == ("t1", "hello", RowState.DONE)
    assert row.parts == ({"type": "text", "text": "hello"},)
    assert await panel.response_id() == "resp_1"
    assert await panel.active_turn() is None
    assert panel.status.asked_s == []


async def test_a_turn_that_completes_without_a_word_has_an_empty_row(panel: Panel) -> None:
    panel.log.say(0, {"type": events.RESPONSE_COMPLETED, "response": {}})

    assert await panel.run() is Conclusion.DONE

    assert (await panel.row()).parts == ()
    assert await panel.response_id() is None


async def test_a_failed_turn_keeps_its_part_and_the_thread_stays_as_it_was(panel: Panel) -> None:
    await panel.storage.set_last_response_id("c1", "resp_0")
    panel.log.say(0, CREATED, delta("half"), FAILED)

    assert await panel.run() is Conclusion.FAILED

    row = await panel.row()
    assert (row.content, row.state, row.error) == ("half", RowState.FAILED, "no more tokens")
    assert await panel.response_id() == "resp_0"
    assert await panel.active_turn() is None


async def test_a_turn_that_fails_without_output_leaves_no_row(panel: Panel) -> None:
    panel.log.say(0, CREATED, FAILED)

    assert await panel.run() is Conclusion.FAILED

    assert await panel.rows() == []
    assert await panel.active_turn() is None


async def test_a_rewound_turn_leaves_what_was_not_taken_back(panel: Panel) -> None:
    said = [delta("a"), *called("c", "ls"), result("c", "x"), delta("lost", "m2")]
    panel.log.say(0, *said, rewind(4), delta("b", "m2"), COMPLETED)

    await panel.run()

    row = await panel.row()
    assert row.content == "ab"
    assert [part["type"] for part in row.parts] == ["text", "tool", "text"]


async def test_a_log_that_uses_seqs_twice_leaves_the_same_row(panel: Panel) -> None:
    """W15 and W16: as another turn control writes it after crashes, without any field of ours."""
    messages = panel.log.script
    panel.log.say(0, CREATED, delta("a"), delta("lost"))
    for seq, event in [(2, rewind(1)), (3, delta("b")), (4, asks("rm")), (4, delta("c"))]:
        where = 10 + 2 * len(messages)
        messages.append((0, type(messages[0][1])(seq, event, where)))
    panel.log.say(0, COMPLETED)

    await panel.run()

    assert (await panel.row()).content == "abc"


@pytest.mark.parametrize(
    "answer",
    [
        RUNNING,
        PARKED,
        unreachable(),
        TimeoutError(),
        RpcError(ErrorCode.SHUTTING_DOWN, "stopping"),
        RpcError(ErrorCode.INTERNAL_ERROR, "journal busy"),
        ProtocolError("no JSON"),
    ],
    ids=repr,
)
async def test_silence_with_a_turn_that_may_go_on_is_waited_out(
    panel: Panel, answer: TurnStatusResult | Exception
) -> None:
    panel.log.say(0, delta("a"))
    panel.log.say(300, delta("b"), COMPLETED)
    panel.says(answer)

    assert await panel.run() is Conclusion.DONE

    assert (await panel.row()).content == "ab"
    assert panel.status.asked_s[0] == 120
    assert len(panel.status.asked_s) == 2


@pytest.mark.parametrize("word", ["done", "failed", "unknown"])
async def test_a_turn_that_is_said_to_be_over_is_concluded_as_an_error(
    panel: Panel, word: str
) -> None:
    panel.log.say(0, CREATED, delta("half"))
    panel.says(status(word))

    assert await panel.run() is Conclusion.GIVEN_UP

    row = await panel.row()
    assert (row.content, row.state) == ("half", RowState.ERROR)
    assert row.error
    assert await panel.active_turn() is None
    assert await panel.response_id() is None
    assert panel.status.asked_s == [120]


async def test_the_reason_of_a_failure_is_that_of_turn_control(panel: Panel) -> None:
    panel.log.say(0, delta("half"))
    panel.says(status("failed", error={"code": "cancelled", "message": "it was cancelled"}))
    await panel.run()
    assert (await panel.row()).error == "it was cancelled"


@pytest.mark.parametrize("word", ["done", "failed", "unknown", "running", "parked"])
async def test_a_turn_that_ends_in_the_moment_of_the_question_is_no_error(
    panel: Panel, word: str
) -> None:
    """W55: it completes after the silence and before the answer."""
    panel.log.say(0, CREATED, delta("a"))

    def ends_now(at_s: float) -> TurnStatusResult:
        panel.log.say(at_s, delta("b"), COMPLETED)
        return status(word)

    panel.says(ends_now)

    assert await panel.run() is Conclusion.DONE

    row = await panel.row()
    assert (row.content, row.state, row.error) == ("ab", RowState.DONE, None)


async def test_a_turn_that_ends_in_the_moment_of_the_deadline_is_no_error(panel: Panel) -> None:
    panel.log.say(0, delta("a"))

    def ends_at_the_deadline(at_s: float) -> TurnStatusResult:
        if at_s >= 900:
            panel.log.say(at_s, COMPLETED)
        return RUNNING

    panel.says(ends_at_the_deadline)

    assert await panel.run() is Conclusion.DONE
    assert panel.status.asked_s[-1] == 900


async def test_a_service_that_is_away_for_ten_minutes_costs_nothing(panel: Panel) -> None:
    panel.log.say(0, CREATED, delta("a"))
    panel.log.say(650, rewind(0), delta("b"), COMPLETED)
    panel.says(lambda at_s: unreachable() if at_s < 600 else RUNNING)

    assert await panel.run() is Conclusion.DONE

    assert (await panel.row()).content == "b"
    assert panel.status.asked_s == [120, 245, 370, 495, 620]


async def test_a_tool_of_sixteen_minutes_that_shows_signs_of_life_is_no_error(
    panel: Panel,
) -> None:
    """W56, W57: silence is asked about, and a turn that speaks has no deadline."""
    panel.log.say(0, delta("a"))
    for minute in range(1, 17):
        panel.log.say(60 * minute, {"type": "vystak.keepalive"})
    panel.log.say(970, delta("b"), COMPLETED)

    assert await panel.run() is Conclusion.DONE
    assert (await panel.row()).content == "ab"


@pytest.mark.parametrize("answer", [RUNNING, unreachable()], ids=["running", "unreachable"])
async def test_at_the_deadline_a_silent_turn_is_concluded_as_an_error(
    panel: Panel, answer: TurnStatusResult | Exception
) -> None:
    panel.log.say(0, delta("half"))
    panel.says(answer)

    assert await panel.run() is Conclusion.GIVEN_UP

    row = await panel.row()
    assert (row.content, row.state, row.error) == ("half", RowState.ERROR, "no end within 900 s")
    assert await panel.active_turn() is None
    assert panel.log.elapsed_s - 900 <= 5


async def test_at_the_deadline_a_parked_turn_is_put_to_rest_with_its_question(
    panel: Panel,
) -> None:
    panel.log.say(0, delta("a"), events.approval_requested({"tool": "rm"}, 1, "i1"))
    panel.says(PARKED)

    assert await panel.run() is Conclusion.AT_REST

    row = await panel.row()
    assert (row.state, row.parts[-1]["state"]) == (RowState.PARKED, "approval-requested")
    assert await panel.storage.pending_approval("t1") == Approval({"tool": "rm"}, 1, "i1")
    assert panel.log.elapsed_s == 900
    assert await panel.active_turn() == TURN
    assert await panel.storage.active_turns() == []


async def test_parked_time_counts_also_over_two_parks_and_a_flaky_service(panel: Panel) -> None:
    """The user's page has no exception for parks, unlike the original."""
    panel.log.say(0, asks("rm"))
    panel.log.say(400, delta("a"), asks("mv"))
    panel.says(lambda at_s: unreachable() if 500 < at_s < 700 else PARKED)

    assert await panel.run() is Conclusion.AT_REST

    assert 900 <= panel.log.elapsed_s <= 905
    assert (await panel.row()).parts[-1]["tool_name"] == "mv"


async def test_a_decision_after_the_rest_starts_a_persister_with_a_deadline_of_its_own(
    panel: Panel,
) -> None:
    panel.log.say(0, delta("a"), asks("rm"))
    panel.says(PARKED)
    await panel.run()

    assert await panel.storage.wake(TURN)
    panel.log.say(1500, delta("b"))
    panel.log.say(1600, COMPLETED)
    panel.says(RUNNING)

    assert await panel.run() is Conclusion.DONE
    row = await panel.row()
    assert (row.content, row.state) == ("ab", RowState.DONE)
    assert await panel.active_turn() is None
    assert await panel.storage.pending_approval("t1") is None


async def test_a_question_is_in_the_row_before_the_turn_goes_on(panel: Panel) -> None:
    panel.log.say(0, delta("a"), asks("rm", name="x"))
    seen: list[Message] = []

    async def parked(_: str) -> TurnStatusResult:
        seen.append(await panel.row())
        panel.log.say(panel.log.elapsed_s, *called("c", "rm"), result("c", "gone"), COMPLETED)
        return PARKED

    await Persister(panel.storage, panel.log, parked, panel.clock).run(TURN)

    assert (seen[0].turn_id, seen[0].state) == ("t1", RowState.PARKED)
    assert seen[0].parts[-1]["input"] == '{"name": "x"}'
    row = await panel.row()
    assert [part["type"] for part in row.parts] == ["text", "tool"]
    assert (row.parts[-1]["output"], row.state) == ("gone", RowState.DONE)


async def test_a_decided_question_leaves_the_row_as_soon_as_the_turn_goes_on(panel: Panel) -> None:
    panel.log.say(0, delta("a"), asks("rm"))
    panel.log.say(10, delta("b"))
    panel.says(lambda _: status("done"))
    rows: list[Message] = []

    async def running(_: str) -> TurnStatusResult:
        rows.append(await panel.row())
        return status("done")

    await Persister(panel.storage, panel.log, running, panel.clock).run(TURN)

    assert (rows[0].state, rows[0].content) == (RowState.RUNNING, "ab")
    assert rows[0].parts == ({"type": "text", "text": "ab"},)


async def test_a_question_whose_event_was_lost_is_taken_from_the_status(panel: Panel) -> None:
    """W16: parked, but the approval event was never published."""
    panel.log.say(0, delta("a"))
    panel.says(status("parked", interrupt={"tool": "rm", "args": {}}))

    assert await panel.run() is Conclusion.AT_REST

    assert (await panel.row()).parts[-1]["tool_call_id"] == "approval:rm"
    assert await panel.storage.pending_approval("t1") == Approval(
        {"tool": "rm", "args": {}}, None, None
    )


async def test_a_turn_that_ends_after_its_deadline_is_corrected_when_it_is_looked_at(
    panel: Panel,
) -> None:
    panel.log.say(0, CREATED, delta("half"))
    await panel.run()
    assert await panel.storage.unsettled_turns("c1") == [TURN]
    assert await panel.persister().look_again(TURN) is Finding.GOES_ON

    panel.log.say(panel.log.elapsed_s, delta(" and whole"), COMPLETED)

    assert await panel.persister().look_again(TURN) is Finding.ENDED
    row = await panel.row()
    assert (row.content, row.state, row.error) == ("half and whole", RowState.DONE, None)
    assert await panel.response_id() == "resp_1"
    assert await panel.storage.unsettled_turns("c1") == []


async def test_a_turn_without_a_row_is_corrected_too(panel: Panel) -> None:
    await panel.run()
    assert await panel.rows() == []
    panel.log.say(panel.log.elapsed_s, delta("late"), COMPLETED)
    assert await panel.persister().look_again(TURN) is Finding.ENDED
    assert (await panel.row()).content == "late"


async def test_looking_again_at_a_question_that_still_waits_changes_nothing(panel: Panel) -> None:
    panel.log.say(0, delta("a"), asks("rm"))
    panel.says(PARKED)
    await panel.run()
    before = await panel.row()

    assert await panel.persister().look_again(TURN) is Finding.NOTHING_NEW

    assert await panel.row() == before
    assert await panel.storage.pending_approval("t1") is not None


async def test_a_turn_is_not_given_up_while_its_log_cannot_be_read(panel: Panel) -> None:
    panel.log.say(0, delta("a"), COMPLETED)
    panel.log.away = [(0, 500)]
    panel.says(status("done"))

    assert await panel.run() is Conclusion.DONE

    assert (await panel.row()).state == RowState.DONE
    assert panel.status.asked_s == [120, 240, 360, 480]


async def test_even_an_unreadable_log_is_not_waited_for_after_the_deadline(panel: Panel) -> None:
    panel.log.say(0, delta("a"))
    panel.log.away = [(0, 5000)]
    panel.says(status("done"))

    assert await panel.run() is Conclusion.GIVEN_UP

    assert panel.log.elapsed_s == 900
    assert await panel.storage.unsettled_turns("c1") == [TURN]


class PowerCutError(Exception):
    """The process dies here."""


class DyingStorage:
    """Lets the process die right before or right after a call of the port."""

    def __init__(self, storage: SqliteStorage, at: int) -> None:
        self._storage = storage
        self._left = at

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)

        async def dying(*args: Any) -> Any:
            self._spend()
            answer = await method(*args)
            self._spend()
            return answer

        return dying

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise PowerCutError


FLOWS: dict[str, tuple[list[dict[str, Any]], TurnStatusResult]] = {
    "completed after a park": (
        [delta("a"), asks("rm"), *called("c", "rm"), result("c", "x"), COMPLETED],
        RUNNING,
    ),
    "failed after a rewind": ([delta("a"), delta("b"), rewind(0), FAILED], RUNNING),
    "given up": ([delta("a")], status("unknown")),
    "put to rest": ([delta("a"), asks("rm")], PARKED),
}


@pytest.mark.parametrize("flow", FLOWS)
async def test_killed_at_any_call_of_the_store_and_started_again_it_leaves_the_same(
    panel: Panel, flow: str
) -> None:
    said, answer = FLOWS[flow]
    panel.log.say(0, *said)
    panel.says(answer)
    deaths = 0
    while True:
        await panel.storage.wake(TURN)
        dying: Any = DyingStorage(panel.storage, at=deaths)
        try:
            first = await Persister(dying, panel.log, panel.status, panel.clock).run(TURN)
        except PowerCutError:
            deaths += 1
            continue
        break

    rows = await panel.rows()
    assert deaths >= 6
    assert len(rows) == 1
    expected = {
        "completed after a park": (Conclusion.DONE, RowState.DONE, "a", 2),
        "failed after a rewind": (Conclusion.FAILED, RowState.FAILED, "a", 1),
        "given up": (Conclusion.GIVEN_UP, RowState.ERROR, "a", 1),
        "put to rest": (Conclusion.AT_REST, RowState.PARKED, "a", 2),
    }
    row = rows[0]
    assert (first, row.state, row.content, len(row.parts)) == expected[flow]
    assert (await panel.active_turn() is None) is (flow != "put to rest")


async def test_a_store_that_fails_leaves_the_turn_active(panel: Panel) -> None:
    panel.log.say(0, delta("a"), COMPLETED)
    dying: Any = DyingStorage(panel.storage, at=0)

    with pytest.raises(PowerCutError):
        await Persister(dying, panel.log, panel.status, panel.clock).run(TURN)

    assert await panel.active_turn() == TURN
    assert await panel.storage.active_turns() == [TURN]
