"""What the agent's whole answers mean."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.integration.agent_http.raw import raw_agent, reply
from vystak_turns.adapters.agent_http.agent import AgentTimes
from vystak_turns.core.facts import Refusal
from vystak_turns.core.findings import AgentView
from vystak_turns.core.turn import Question
from vystak_turns.ports import AgentSilentError, CallRefusedError, DispatchCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.agent_http.raw import Connection
    from vystak_turns.adapters.agent_http.agent import HttpAgent

    AgentAt: TypeAlias = Callable[..., HttpAgent]

PORTION = 100
DISPATCH = DispatchCall("t1", "resp_1", 7, {"input": "hi"})
UNSEEN: dict[str, Any] = {
    "checkpoint_id": None,
    "interrupted": False,
    "interrupts": [],
    "interrupt_ids": [],
    "turn_id": None,
    "epoch": None,
    "active": False,
    "finished": False,
    "error": None,
    "turns": [],
}


@pytest.mark.parametrize(
    ("status", "reason", "refusal"),
    [
        (409, "stale_epoch", Refusal.STALE_EPOCH),
        (409, "busy", Refusal.BUSY),
        (409, "not_pending", Refusal.NOT_PENDING),
        (409, "something else", Refusal.BUSY),
        (409, None, Refusal.BUSY),
        (404, "unknown_checkpoint", Refusal.UNKNOWN_CHECKPOINT),
        (404, "unknown_thread", Refusal.UNKNOWN_THREAD),
        (404, "busy", Refusal.WRONG),
        (404, None, Refusal.WRONG),
        (400, None, Refusal.WRONG),
        (400, 7, Refusal.WRONG),
        (413, None, Refusal.WRONG),
        (422, None, Refusal.WRONG),
        (204, None, Refusal.WRONG),
        (302, None, Refusal.WRONG),
        (408, None, Refusal.UNREACHABLE),
        (425, None, Refusal.UNREACHABLE),
        (429, None, Refusal.UNREACHABLE),
        (500, None, Refusal.UNREACHABLE),
        (503, "draining", Refusal.UNREACHABLE),
        (504, None, Refusal.UNREACHABLE),
    ],
)
async def test_a_refusal_is_told_apart_by_status_and_reason(
    agent_at: AgentAt, status: int, reason: str | None, refusal: Refusal
) -> None:
    body = b"" if status == 204 else json.dumps({"error": "no such", "reason": reason}).encode()

    refused = await _refused(agent_at, status, body)

    assert refused.refusal is refusal
    assert str(status) in refused.words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "input: must not be empty"}', "input: must not be empty"),
        (b'{"error": {"message": "deeper"}}', "deeper"),
        (b'{"detail": [{"msg": "x"}]}', '[{"msg": "x"}]'),
        (b"plain words", "plain words"),
        (b"", "without a reason"),
        (b"\xff", "\ufffd"),
        (b'{"error": "half \\ud800"}', "half ?"),
        (b"x" * 200_000, "x" * 500),
    ],
)
async def test_a_refusal_has_the_agents_words_in_short(
    agent_at: AgentAt, body: bytes, words: str
) -> None:
    refused = await _refused(agent_at, 400, body)

    assert refused.words == f"the agent answered 400: {words}"


async def test_a_refusal_whose_body_does_not_come_is_still_a_refusal(agent_at: AgentAt) -> None:
    async def answer(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 422 Words\r\ncontent-length: 10\r\n\r\nhalf")
        await connection.left()

    async with raw_agent(answer) as raw, asyncio.timeout(10):
        with pytest.raises(CallRefusedError, match="half") as refused:
            async with agent_at(raw.url).run(DISPATCH):
                pass

    assert refused.value.refusal is Refusal.WRONG


async def test_the_view_asks_for_the_thread(agent_at: AgentAt) -> None:
    async with raw_agent(reply(200, json.dumps(UNSEEN).encode())) as raw:
        await agent_at(raw.url).view("resp a&b", "t1")

    (request,) = raw.requests
    assert (request.method, request.target) == (
        "GET",
        "/v1/_vystak/checkpoint?thread_id=resp+a%26b",
    )


def seen(**fields: Any) -> AgentView:
    given = {
        "checkpoint_id": "ck1",
        "stamped": True,
        "active": False,
        "finished": False,
        "error": None,
        "questions": (),
        "epoch": 7,
    }
    return AgentView(**{**given, **fields})


STAMPED = {**UNSEEN, "checkpoint_id": "ck1", "turn_id": "t1", "epoch": 7, "turns": ["t0", "t1"]}


@pytest.mark.parametrize(
    ("answer", "view"),
    [
        (UNSEEN, seen(checkpoint_id=None, stamped=False, epoch=None)),
        (STAMPED, seen()),
        ({**STAMPED, "turns": ["t0"]}, seen(stamped=False)),
        ({**STAMPED, "turn_id": "t2", "turns": ["t1", "t2"]}, seen()),
        ({**STAMPED, "active": True, "interrupted": True}, seen(active=True)),
        ({**STAMPED, "finished": True}, seen(finished=True)),
        ({**STAMPED, "error": "ValueError: \ud800"}, seen(error="ValueError: ?")),
        (
            {**STAMPED, "interrupts": [{"q": 1}, None], "interrupt_ids": ["i1", "i2"]},
            seen(questions=(Question("i1", {"q": 1}), Question("i2", None))),
        ),
        ({**STAMPED, "more": [1]}, seen()),
    ],
)
async def test_the_view_is_read_as_it_concerns_the_turn(
    agent_at: AgentAt, answer: dict[str, Any], view: AgentView
) -> None:
    assert await _view(agent_at, answer) == view


@pytest.mark.parametrize(
    ("answer", "view"),
    [
        (
            {"checkpoint_id": None, "interrupted": False, "interrupts": []},
            seen(checkpoint_id=None, stamped=False, epoch=None, catches_up=False),
        ),
        (
            {"checkpoint_id": "ck1", "interrupted": False, "interrupts": []},
            seen(finished=True, epoch=None, catches_up=False),
        ),
        (
            {"checkpoint_id": "ck1", "interrupted": True, "interrupts": []},
            seen(epoch=None, catches_up=False),
        ),
        (
            {"checkpoint_id": "ck1", "interrupted": True, "interrupts": ["a", "b"]},
            seen(
                epoch=None,
                catches_up=False,
                questions=(
                    Question("unnamed:ck1:0:ac8d8342bbb2", "a"),
                    Question("unnamed:ck1:1:c100f95c1913", "b"),
                ),
            ),
        ),
        (
            {"checkpoint_id": "ck1", "interrupted": True},
            seen(
                epoch=None,
                catches_up=False,
                questions=(Question("unnamed:ck1:0:74234e98afe7", None),),
            ),
        ),
        ({"checkpoint_id": "ck1", "turn_id": "t2"}, seen(stamped=False, finished=True, epoch=None)),
    ],
)
async def test_an_agent_that_knows_nothing_of_us_is_read_with_the_originals_guarantees(
    agent_at: AgentAt, answer: dict[str, Any], view: AgentView
) -> None:
    assert await _view(agent_at, answer) == view


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint_id": 7},
        {"active": "yes"},
        {"finished": None},
        {"interrupted": 1},
        {"error": {}},
        {"epoch": "7"},
        {"epoch": True},
        {"interrupts": {}},
        {"interrupts": ["a"], "interrupt_ids": []},
        {"interrupts": ["a", "b"], "interrupt_ids": ["i", "i"]},
        {"interrupts": ["a"], "interrupt_ids": [7]},
        {"interrupts": ["a"], "interrupt_ids": "i"},
    ],
)
async def test_a_view_without_sense_is_as_good_as_silence(
    agent_at: AgentAt, change: dict[str, Any]
) -> None:
    with pytest.raises(AgentSilentError, match="makes no sense"):
        await _view(agent_at, {**STAMPED, **change})


@pytest.mark.parametrize("body", [b"", b"rubbish", b"[]", b"{}", b"\xff", b"[" * 5000])
async def test_an_answer_that_is_no_view_is_as_good_as_silence(
    agent_at: AgentAt, body: bytes
) -> None:
    async with raw_agent(reply(200, body)) as raw:
        with pytest.raises(AgentSilentError):
            await agent_at(raw.url).view("resp_1", "t1")


@pytest.mark.parametrize("status", [204, 302, 404, 500, 503])
async def test_a_status_other_than_200_is_silence(agent_at: AgentAt, status: int) -> None:
    async with raw_agent(reply(status)) as raw:
        agent = agent_at(raw.url)
        with pytest.raises(AgentSilentError, match=str(status)):
            await agent.view("resp_1", "t1")
        assert await agent.healthy() is False
        await agent.drain("resp_1", "t1", 7)


async def test_an_agent_that_does_not_answer_is_silent(agent_at: AgentAt) -> None:
    async def answer(connection: Connection) -> None:
        await connection.left()

    async with raw_agent(answer) as raw, asyncio.timeout(10):
        agent = agent_at(raw.url)
        with pytest.raises(AgentSilentError):
            await agent.view("resp_1", "t1")
        assert await agent.healthy() is False
        await agent.drain("resp_1", "t1", 7)


async def test_an_answer_without_end_is_silence_and_is_not_kept(agent_at: AgentAt) -> None:
    async def answer(connection: Connection) -> None:
        await connection.send(b'HTTP/1.1 200 OK\r\n\r\n{"checkpoint_id":"')
        while True:
            await connection.send(b"x" * 65536)

    async with raw_agent(answer) as raw, asyncio.timeout(10):
        agent = agent_at(raw.url)
        with pytest.raises(AgentSilentError, match="larger than 160000 bytes"):
            await agent.view("resp_1", "t1")
        assert await agent.healthy() is False
        await agent.drain("resp_1", "t1", 7)


async def test_a_crowd_of_turns_asks_in_portions(agent_at: AgentAt) -> None:
    """A thousand calls at once would keep the service from everything else for seconds."""
    under_way = 0

    async def answer(connection: Connection) -> None:
        nonlocal under_way
        under_way += 1
        if under_way == PORTION:
            full.set()
        await released.wait()
        await reply(200, json.dumps(UNSEEN).encode())(connection)

    full, released = asyncio.Event(), asyncio.Event()
    async with raw_agent(answer) as raw, asyncio.timeout(60):
        agent = agent_at(raw.url, AgentTimes())
        views = [agent.view(f"resp_{number}", "t1") for number in range(PORTION + 50)]
        asking = asyncio.gather(*views)
        await full.wait()
        for _ in range(1000):
            await asyncio.sleep(0)
        at_once = under_way
        released.set()
        await asking

    assert at_once == PORTION
    assert under_way == PORTION + 50


async def test_an_agent_that_is_gone_is_silent(agent_at: AgentAt) -> None:
    async with raw_agent(reply(200)) as raw:
        assert await agent_at(raw.url).healthy() is True
    agent = agent_at(raw.url)

    with pytest.raises(AgentSilentError):
        await agent.view("resp_1", "t1")
    assert await agent.healthy() is False
    await agent.drain("resp_1", "t1", 7)


async def test_a_drain_names_thread_turn_and_epoch(agent_at: AgentAt) -> None:
    async with raw_agent(reply(200, b'{"active":true}')) as raw:
        await agent_at(raw.url).drain("resp_1", "t1", 7)

    (request,) = raw.requests
    assert (request.method, request.target) == ("POST", "/v1/_vystak/drain")
    assert request.json == {"thread_id": "resp_1", "turn_id": "t1", "epoch": 7}


async def _view(agent_at: AgentAt, answer: dict[str, Any]) -> AgentView:
    async with raw_agent(reply(200, json.dumps(answer).encode())) as raw:
        return await agent_at(raw.url).view("resp_1", "t1")


async def _refused(agent_at: AgentAt, status: int, body: bytes) -> CallRefusedError:
    async with raw_agent(reply(status, body)) as raw, asyncio.timeout(10):
        with pytest.raises(CallRefusedError) as refused:
            async with agent_at(raw.url).run(DISPATCH):
                pass
    return refused.value
