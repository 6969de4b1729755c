"""What comes out of an agent's stream, however it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.integration.agent_http.raw import CHUNKED, HEAD, LAST_CHUNK, raw_agent, stream
from vystak_turns.adapters.agent_http.agent import AgentTimes
from vystak_turns.core.facts import Refusal, StreamEnd
from vystak_turns.core.turn import Decision
from vystak_turns.ports import (
    AgentEvent,
    CallRefusedError,
    DispatchCall,
    Ended,
    Marker,
    ResumeCall,
    RolledBack,
    StreamItem,
    TooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.agent_http.raw import Answer, Connection
    from vystak_turns.adapters.agent_http.agent import HttpAgent

    AgentAt: TypeAlias = Callable[..., HttpAgent]

DISPATCH = DispatchCall("t1", "resp_1", 7, {"input": "hi", "stream": False, "user_id": "\ud800"})
CREATED = b'{"type":"response.created","response":{"id":"resp_1"}}'
DELTA = b'{"type": "response.output_text.delta",  "delta":"\xc3\xa4"}'
COMPLETED = b'{"type":"response.completed","response":{}}'
WAIT_S = 20


def sse(*events: bytes) -> bytes:
    return b"".join(b"data: %b\n\n" % event for event in events)


async def items(agent: HttpAgent, call: DispatchCall | ResumeCall = DISPATCH) -> list[StreamItem]:
    async with asyncio.timeout(WAIT_S), agent.run(call) as found:
        return [item async for item in found]


async def items_of(agent_at: AgentAt, answer: Answer) -> list[StreamItem]:
    async with raw_agent(answer) as raw:
        return await items(agent_at(raw.url))


async def test_events_pass_unchanged_and_nothing_follows_the_terminal_one(
    agent_at: AgentAt,
) -> None:
    found = await items_of(agent_at, stream(sse(CREATED, DELTA, COMPLETED, DELTA, b"[DONE]")))

    assert found == [
        AgentEvent("response.created", CREATED),
        AgentEvent("response.output_text.delta", DELTA),
        AgentEvent("response.completed", COMPLETED),
    ]


async def test_a_failure_of_the_agent_is_terminal(agent_at: AgentAt) -> None:
    failed = b'{"type":"response.failed","response":{"error":{"message":"m"}}}'

    assert await items_of(agent_at, stream(sse(failed, DELTA))) == [
        AgentEvent("response.failed", failed)
    ]


async def test_events_in_band_become_items_of_their_own(agent_at: AgentAt) -> None:
    found = await items_of(
        agent_at,
        stream(
            sse(
                b'{"type":"vystak.checkpoint","checkpoint_id":"ck1"}',
                b'{"type":"vystak.rollback","checkpoint_id":"ck1"}',
                b'{"type":"vystak.rollback","checkpoint_id":null}',
                b'{"type":"vystak.drained"}',
                DELTA,
            )
        ),
    )

    assert found == [Marker("ck1"), RolledBack("ck1"), RolledBack(None), Ended(StreamEnd.DRAINED)]


async def test_nonsense_is_left_out_and_unknown_types_are_not(agent_at: AgentAt) -> None:
    unknown = b'{"type":"vendor.thing","x":[1]}'
    found = await items_of(
        agent_at,
        stream(
            sse(
                b"rubbish",
                b'{"type":"response.created"',
                b"[1]",
                b'{"type":7}',
                b'{"x":1}',
                b'{"type":"x","n":NaN}',
                b'{"type":"x","n":"\xff"}',
                b"[" * 5000,
                b'{"type":"vystak.checkpoint"}',
                b'{"type":"vystak.checkpoint","checkpoint_id":"\\ud800"}',
                b'{"type":"vystak.turn.rewind","to_seq":-1}',
                b'{"type":"vystak.approval.requested","payload":1}',
                unknown,
            ),
            b"event: x\nid: 7\nretry: 1\nnonsense\n\n",
        ),
    )

    assert found == [AgentEvent("vendor.thing", unknown), Ended(StreamEnd.CLEAN)]


async def test_a_rollback_that_cannot_be_understood_loses_the_stream(agent_at: AgentAt) -> None:
    odd = b'{"type":"vystak.rollback","checkpoint_id":7}'

    assert await items_of(agent_at, stream(sse(odd, COMPLETED))) == [Ended(StreamEnd.LOST)]


@pytest.mark.parametrize(
    "body",
    [
        b"data:" + CREATED + b"\n\n",
        b"data: " + CREATED + b"\r\n\r\n",
        b"\n\n: comment\n\ndata: " + CREATED + b"\n\n",
        b'data: {"type":\ndata: "response.created",\ndata: "response":{"id":"resp_1"}}\n\n',
        b"data: " + CREATED + b"\n",
        b"data: " + CREATED,
    ],
)
async def test_the_ways_to_write_an_event_are_all_understood(
    agent_at: AgentAt, body: bytes
) -> None:
    found = await items_of(agent_at, stream(body))

    assert [getattr(item, "type", None) for item in found] == ["response.created", None]


async def test_an_event_may_come_byte_by_byte(agent_at: AgentAt) -> None:
    body = sse(CREATED, DELTA).replace(b"\n", b"\r\n")

    found = await items_of(agent_at, stream(*(body[i : i + 1] for i in range(len(body)))))

    assert found == [
        AgentEvent("response.created", CREATED),
        AgentEvent("response.output_text.delta", DELTA),
        Ended(StreamEnd.CLEAN),
    ]


@pytest.mark.parametrize("parts", [[sse(CREATED)], [sse(CREATED), sse(b"[DONE]", DELTA)]])
async def test_an_end_without_a_terminal_event_is_clean(
    agent_at: AgentAt, parts: list[bytes]
) -> None:
    found = await items_of(agent_at, stream(*parts))

    assert found == [AgentEvent("response.created", CREATED), Ended(StreamEnd.CLEAN)]


async def test_a_body_that_is_cut_short_is_lost_and_half_an_event_is_not_told(
    agent_at: AgentAt,
) -> None:
    found = await items_of(agent_at, stream(sse(CREATED), b"data: " + COMPLETED, end=b""))

    assert found == [AgentEvent("response.created", CREATED), Ended(StreamEnd.LOST)]


async def test_a_reset_connection_is_lost(agent_at: AgentAt) -> None:
    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED)
        connection.reset()

    assert await items_of(agent_at, answer) == [Ended(StreamEnd.LOST)]


async def test_a_body_without_a_length_ends_cleanly(agent_at: AgentAt) -> None:
    async def answer(connection: Connection) -> None:
        await connection.send(HEAD, b"\r\n", sse(CREATED))

    assert (await items_of(agent_at, answer))[-1] == Ended(StreamEnd.CLEAN)


async def test_chunks_that_are_not_http_are_lost(agent_at: AgentAt) -> None:
    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED, b"rubbish\r\n")

    assert await items_of(agent_at, answer) == [Ended(StreamEnd.LOST)]


@pytest.mark.parametrize(
    "parts",
    [
        [b"data: " + b"x" * 20_000],
        [b"x" * 4000] * 5,
        [b"data: " + b"x" * 4000 + b"\n"] * 5,
    ],
)
async def test_an_event_above_the_limit_is_named_since_every_try_would_bring_it(
    agent_at: AgentAt, parts: list[bytes]
) -> None:
    words = "the agent sent an event of more than 10000 bytes: make it smaller"
    assert await items_of(agent_at, stream(*parts)) == [TooLarge(words)]


async def test_three_missed_heartbeats_lose_a_stream_that_had_one(agent_at: AgentAt) -> None:
    loop = asyncio.get_running_loop()

    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.chunks(sse(CREATED), b": keep-alive\n\n")
        await connection.left()

    started_s = loop.time()
    found = await items_of(agent_at, answer)

    assert found[-1] == Ended(StreamEnd.LOST)
    assert 0.3 <= loop.time() - started_s < 1.0


async def test_an_agent_without_heartbeats_may_be_silent_for_longer(agent_at: AgentAt) -> None:
    loop = asyncio.get_running_loop()

    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.chunks(sse(CREATED))
        await connection.left()

    started_s = loop.time()
    found = await items_of(agent_at, answer)

    assert found[-1] == Ended(StreamEnd.LOST)
    assert loop.time() - started_s >= 1.0


async def test_a_slow_reader_is_not_the_agents_silence(agent_at: AgentAt) -> None:
    answer = stream(b": keep-alive\n\n" + sse(CREATED), sse(DELTA), sse(COMPLETED))
    async with (
        raw_agent(answer) as raw,
        asyncio.timeout(WAIT_S),
        agent_at(raw.url).run(DISPATCH) as found,
    ):
        types = []
        async for item in found:
            assert isinstance(item, AgentEvent)
            types.append(item.type)
            passed = asyncio.Event()
            asyncio.get_running_loop().call_later(0.4, passed.set)
            await passed.wait()

    assert types == ["response.created", "response.output_text.delta", "response.completed"]


async def test_leaving_closes_the_connection(agent_at: AgentAt) -> None:
    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.chunks(sse(CREATED))
        await connection.left()

    async with raw_agent(answer) as raw, asyncio.timeout(WAIT_S):
        async with agent_at(raw.url).run(DISPATCH) as found:
            assert isinstance(await anext(found), AgentEvent)
            assert not raw.answered.is_set()
        await raw.answered.wait()


async def test_a_cancelled_reader_closes_the_connection(agent_at: AgentAt) -> None:
    async def answer(connection: Connection) -> None:
        await connection.send(CHUNKED)
        await connection.left()

    async with raw_agent(answer) as raw, asyncio.timeout(WAIT_S):
        reading = asyncio.ensure_future(items(agent_at(raw.url)))
        await raw.asked.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await raw.answered.wait()


async def test_hundreds_of_streams_are_open_at_once(agent_at: AgentAt) -> None:
    go = asyncio.Event()
    waiting = 0

    async def answer(connection: Connection) -> None:
        nonlocal waiting
        await connection.send(CHUNKED)
        waiting += 1
        if waiting == 250:
            go.set()
        await go.wait()
        await connection.chunks(sse(COMPLETED))
        await connection.send(LAST_CHUNK)

    async with raw_agent(answer) as raw:
        agent = agent_at(raw.url, AgentTimes())
        found = await asyncio.gather(*(items(agent) for _ in range(250)))

    assert found == [[AgentEvent("response.completed", COMPLETED)]] * 250


async def test_a_dispatch_is_the_request_made_streaming_on_the_turns_thread(
    agent_at: AgentAt,
) -> None:
    async with raw_agent(stream(sse(COMPLETED))) as raw:
        await items(agent_at(raw.url))

    (request,) = raw.requests
    assert (request.method, request.target) == ("POST", "/v1/responses")
    assert request.json == {
        "input": "hi",
        "user_id": "\ud800",
        "stream": True,
        "previous_response_id": "resp_1",
        "vystak": {"turn_id": "t1", "epoch": 7},
    }


BASE_RESUME = {"thread_id": "resp_1", "turn_id": "t1", "epoch": 7}


@pytest.mark.parametrize(
    ("catch_up", "after", "decisions", "more"),
    [
        (False, None, (), {}),
        (True, None, (), {"after_checkpoint_id": None}),
        (True, "ck1", (), {"after_checkpoint_id": "ck1"}),
        (
            False,
            None,
            (Decision("i1", None), Decision("i2", {"a": 1})),
            {"decisions": {"i1": None, "i2": {"a": 1}}},
        ),
        (
            True,
            "ck1",
            (Decision("i1", False),),
            {"after_checkpoint_id": "ck1", "decisions": {"i1": False}},
        ),
        (False, None, (Decision("unnamed:ck1:0", "yes"),), {"resume": "yes"}),
    ],
)
async def test_a_resume_says_only_what_is_wanted(
    agent_at: AgentAt,
    catch_up: bool,
    after: str | None,
    decisions: tuple[Decision, ...],
    more: dict[str, object],
) -> None:
    call = ResumeCall("t1", "resp_1", 7, catch_up, after, decisions)
    async with raw_agent(stream(sse(COMPLETED))) as raw:
        await items(agent_at(raw.url), call)

    (request,) = raw.requests
    assert (request.method, request.target) == ("POST", "/v1/_vystak/resume")
    assert request.json == {**BASE_RESUME, **more}


async def test_nobody_listening_is_a_refusal_since_nothing_was_started(agent_at: AgentAt) -> None:
    async with raw_agent(stream()) as raw:
        pass

    with pytest.raises(CallRefusedError) as refused:
        await items(agent_at(raw.url))
    assert refused.value.refusal is Refusal.UNREACHABLE


@pytest.mark.parametrize("how", ["reset", "closed", "silent", "rubbish"])
async def test_a_call_without_an_answer_is_a_lost_stream_since_it_may_have_started_a_run(
    agent_at: AgentAt, how: str
) -> None:
    async def answer(connection: Connection) -> None:
        match how:
            case "reset":
                connection.reset()
            case "silent":
                await connection.left()
            case "rubbish":
                await connection.send(b"rubbish\r\n\r\n")
            case _:
                pass

    assert await items_of(agent_at, answer) == [Ended(StreamEnd.LOST)]
