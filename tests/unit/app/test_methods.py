"""The methods on a real journal: what callers may do to turns, and what they are told."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.turn_samples import PARK
from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal
from vystak_turns.adapters.system import RandomIds, SystemClock
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.methods import Methods
from vystak_turns.core.turn import Park, Question, Turn
from vystak_turns.ports import JournalUnavailableError
from vystak_turns_rpc.errors import ErrorCode
from vystak_turns_rpc.vocabulary import TurnState

_T = TypeVar("_T")
AGENT = "worker"
SUBJECT = "vystak.default.streams.c1.{}"
STATUS = {
    TurnState.QUEUED: "running",
    TurnState.RUNNING: "running",
    TurnState.PROBING: "running",
    TurnState.PARKED: "parked",
    TurnState.CANCELLING: "running",
    TurnState.COMPLETED: "done",
    TurnState.FAILED: "failed",
    TurnState.CANCELLED: "failed",
}


class Asleep:
    """Drivers that only note whom they should drive."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.ended: list[str] = []

    def wake(self, turn_id: str) -> None:
        self.woken.append(turn_id)

    def end(self, turn_id: str) -> None:
        self.ended.append(turn_id)

    def waiting_for(self, _turn_id: str) -> str | None:
        return None


class Desk:
    """A caller's view of turn control without drivers."""

    def __init__(self, journal: SqliteJournal) -> None:
        clock = SystemClock()
        self.journal = journal
        self.drivers = Asleep()
        ledger = Ledger(journal, clock)
        self.methods = Methods(
            journal, ledger, self.drivers, clock, RandomIds(), {AGENT: "vystak.default"}
        )
        self._ids = itertools.count(1)

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        reply = await self.methods.handle(AGENT, json.dumps(body).encode())
        assert reply is not None
        answer: dict[str, Any] = json.loads(reply)
        return answer

    async def create(self, turn_id: str, thread_id: str | None = None) -> dict[str, Any]:
        request = {"input": "go", "previous_response_id": thread_id}
        subject = SUBJECT.format(turn_id)
        return await self.ask(
            "responses/createDetached", turn_id=turn_id, request=request, stream_subject=subject
        )

    async def turn(self, turn_id: str) -> Turn:
        turn = await self.journal.get(turn_id)
        assert turn is not None
        return turn

    async def put(self, turn_id: str, **changes: Any) -> None:
        """Bring a turn into a state in which drivers would have brought it."""
        await self.journal.save(replace(await self.turn(turn_id), **changes))


async def inline(work: Callable[[], _T]) -> _T:
    await asyncio.sleep(0)
    return work()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    journal = SqliteJournal(tmp_path / "turns.db", inline)
    await journal.open(1)
    yield Desk(journal)
    await journal.close()


def code(answer: dict[str, Any]) -> int:
    number: int = answer["error"]["code"]
    return number


async def test_r5_a_repeat_is_acknowledged_only(desk: Desk) -> None:
    first = await desk.create("t1")
    second = await desk.create("t1")

    assert first["result"] == second["result"]
    assert desk.drivers.woken == ["t1"]


async def test_r5_another_request_under_the_same_id_is_an_error(desk: Desk) -> None:
    await desk.create("t1")

    answer = await desk.create("t1", "resp_other")

    assert code(answer) == ErrorCode.INVALID_PARAMS
    assert (await desk.turn("t1")).thread_id != "resp_other"


@pytest.mark.parametrize("same", [{"input": 1}, {"input": True}, {"input": "1"}, {"input": 1.5}])
async def test_r5_requests_are_compared_as_json(desk: Desk, same: dict[str, Any]) -> None:
    subject = SUBJECT.format("t1")
    asked = {"turn_id": "t1", "stream_subject": subject}
    await desk.ask("responses/createDetached", request={"input": 1}, **asked)

    answer = await desk.ask("responses/createDetached", request=same, **asked)

    is_same = json.dumps(same) == '{"input": 1}'
    assert ("result" in answer) is is_same


async def test_r5_a_hundred_creates_of_one_turn_make_one(desk: Desk) -> None:
    answers = await asyncio.gather(*(desk.create("t1", "resp_1") for _ in range(100)))

    assert all("result" in answer for answer in answers)
    assert desk.drivers.woken == ["t1"]


async def test_r13_of_many_turns_on_one_thread_one_is_taken(desk: Desk) -> None:
    answers = await asyncio.gather(*(desk.create(f"t{n}", "resp_1") for n in range(50)))

    taken = [answer["result"]["turn_id"] for answer in answers if "result" in answer]
    refused = [answer for answer in answers if "error" in answer]
    assert len(taken) == 1
    assert {code(answer) for answer in refused} == {ErrorCode.THREAD_BUSY}
    assert all(answer["error"]["data"] == {"turn_id": taken[0]} for answer in refused)


async def test_r13_a_new_turn_ends_a_parked_one_on_its_thread(desk: Desk) -> None:
    await desk.create("t1", "resp_1")
    await desk.put("t1", state=TurnState.PARKED, park=PARK, generation=1)

    await desk.create("t2", "resp_1")

    old = await desk.turn("t1")
    assert (old.state, old.intent) == (TurnState.CANCELLING, "superseded")
    assert set(desk.drivers.woken) == {"t1", "t2"}
    late = await desk.ask("responses/resumeDetached", turn_id="t1", resume="yes")
    assert "not parked" in late["error"]["message"]


async def test_r6_of_a_hundred_decisions_one_counts(desk: Desk) -> None:
    await desk.create("t1")
    await desk.put("t1", state=TurnState.PARKED, park=PARK, generation=1)

    answers = await asyncio.gather(
        *(desk.ask("responses/resumeDetached", turn_id="t1", resume=n) for n in range(100))
    )

    won = [n for n, answer in enumerate(answers) if "result" in answer]
    lost = [answer for answer in answers if "error" in answer]
    assert len(won) == 1
    assert {code(answer) for answer in lost} == {ErrorCode.INVALID_PARAMS}
    assert all("not parked" in answer["error"]["message"] for answer in lost)
    park = (await desk.turn("t1")).park
    assert park is not None
    assert [decision.value for decision in park.decisions] == won


@pytest.mark.parametrize("stale", [{"park_generation": 1}, {"interrupt_id": "i1"}])
async def test_r6_a_decision_for_an_earlier_question_is_refused(
    desk: Desk, stale: dict[str, Any]
) -> None:
    await desk.create("t1")
    second = Park("ck9", 2, "i2", (Question("i2", "and this?"),))
    await desk.put("t1", state=TurnState.PARKED, park=second, generation=2)

    answer = await desk.ask("responses/resumeDetached", turn_id="t1", resume="yes", **stale)

    assert code(answer) == ErrorCode.INVALID_PARAMS
    assert (await desk.turn("t1")).state is TurnState.PARKED


async def test_r8_a_parked_turn_tells_its_question_from_the_journal(desk: Desk) -> None:
    await desk.create("t1")
    await desk.put("t1", state=TurnState.PARKED, park=PARK, generation=1)

    result = (await desk.ask("responses/turnStatus", turn_id="t1"))["result"]

    assert (result["status"], result["interrupt"]) == ("parked", {"ask": "may I?"})
    assert (result["park_generation"], result["interrupt_id"]) == (1, "i1")


@pytest.mark.parametrize("params", [{}, {"turn_id": None}, {"turn_id": ""}, {"turn_id": "nobody"}])
async def test_an_unknown_turn_is_unknown(desk: Desk, params: dict[str, Any]) -> None:
    result = (await desk.ask("responses/turnStatus", **params))["result"]

    assert (result["status"], result["interrupt"]) == ("unknown", None)


@pytest.mark.parametrize("state", TurnState)
async def test_every_state_has_its_status_and_only_a_parked_turn_a_question(
    desk: Desk, state: TurnState
) -> None:
    await desk.create("t1")
    await desk.put("t1", state=state, park=PARK, generation=1)

    result = (await desk.ask("responses/turnStatus", turn_id="t1"))["result"]

    parked = state is TurnState.PARKED
    assert result["status"] == STATUS[state]
    assert result["interrupt"] == ({"ask": "may I?"} if parked else None)


@pytest.mark.parametrize("state", [s for s in TurnState if s is not TurnState.PARKED])
async def test_r6_only_a_parked_turn_takes_a_decision(desk: Desk, state: TurnState) -> None:
    await desk.create("t1")
    await desk.put("t1", state=state, park=PARK, generation=1)
    before = await desk.turn("t1")

    answer = await desk.ask("responses/resumeDetached", turn_id="t1", resume="yes")

    assert code(answer) == ErrorCode.INVALID_PARAMS
    assert "not parked" in answer["error"]["message"]
    assert await desk.turn("t1") == before


async def test_r6_a_turn_with_an_accepted_decision_is_running(desk: Desk) -> None:
    await desk.create("t1")
    await desk.put("t1", state=TurnState.PARKED, park=PARK, generation=1)

    answer = await desk.ask("responses/resumeDetached", turn_id="t1", resume="yes")

    assert answer["result"] == {"turn_id": "t1"}
    status = (await desk.ask("responses/turnStatus", turn_id="t1"))["result"]
    assert (status["status"], status["interrupt"]) == ("running", None)


async def test_r8_no_reply_is_better_than_a_wrong_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(_turn_id: str) -> Turn:
        raise JournalUnavailableError("disk on fire")

    monkeypatch.setattr(desk.journal, "get", unreadable)
    body = {"jsonrpc": "2.0", "id": 1, "method": "responses/turnStatus"}
    body["params"] = {"turn_id": "t1"}

    assert await desk.methods.handle(AGENT, json.dumps(body).encode()) is None


async def test_a_create_that_cannot_be_journaled_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise JournalUnavailableError("disk full")

    monkeypatch.setattr(desk.journal, "create", full)

    answer = await desk.create("t1")

    assert code(answer) == ErrorCode.JOURNAL_UNAVAILABLE
    assert not desk.drivers.woken


async def test_a_cancel_is_committed_and_its_end_seen_to(desk: Desk) -> None:
    await desk.create("t1")

    answer = await desk.ask("responses/cancelDetached", turn_id="t1")

    assert answer["result"] == {"turn_id": "t1", "status": "running"}
    assert (await desk.turn("t1")).state is TurnState.CANCELLING
    assert desk.drivers.ended == ["t1"]


async def test_a_notification_is_carried_out_without_a_reply(desk: Desk) -> None:
    await desk.create("t1")
    body = {"jsonrpc": "2.0", "method": "responses/cancelDetached", "params": {"turn_id": "t1"}}

    assert await desk.methods.handle(AGENT, json.dumps(body).encode()) is None
    assert desk.drivers.ended == ["t1"]


async def test_other_methods_are_not_found_and_the_known_ones_named(desk: Desk) -> None:
    answer = await desk.ask("message/send")

    assert code(answer) == ErrorCode.METHOD_NOT_FOUND
    assert "responses/turnStatus" in answer["error"]["message"]
