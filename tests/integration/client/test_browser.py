"""Frames for browsers from a real broker: live, resumed, through outages, in silence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.support.nats_server import NatsServer
from tests.support.turn_events import COMPLETED, CREATED, asks, called, delta, result, rewind
from tests.support.waiting import ticks
from vystak_turns_client.browser import KEEP_ALIVE, Frame, frames
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_client.errors import NotConnected, StreamNotFound
from vystak_turns_client.streams import ensure_stream
from vystak_turns_rpc.stream import stream_settings

pytestmark = pytest.mark.broker

BASE = "vystak.default"
STREAM = "vystak-default-streams"
TURN = f"{BASE}.streams.c1.t1"
OTHER = f"{BASE}.streams.c1.t2"


class Turn:
    def __init__(self, js: JetStreamContext) -> None:
        self.js = js
        self.seq = 0

    async def say(self, *said: dict[str, Any]) -> None:
        for event in said:
            body = json.dumps({"seq": self.seq, "event": event}).encode()
            await self.js.publish(TURN, body, timeout=10)
            await self.js.publish(OTHER, body, timeout=10)
            self.seq += 1


@pytest.fixture
async def nc(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await connect(nats_server.url, on_error=lambda _: None)
    yield client
    await disconnect(client)


@pytest.fixture
async def turn(nc: Client) -> Turn:
    js = nc.jetstream()
    await ensure_stream(js, stream_settings(BASE))
    return Turn(js)


async def to_end(given: AsyncGenerator[Frame, None]) -> list[Frame]:
    async with asyncio.timeout(30):
        return [frame async for frame in given if frame != KEEP_ALIVE]


async def take(given: AsyncGenerator[Frame, None], count: int) -> list[Frame]:
    async with asyncio.timeout(30):
        return [await anext(given) for _ in range(count)]


def shown(got: list[Frame]) -> list[tuple[str, int]]:
    return [(frame.type, frame.data["seq"]) for frame in got]


async def test_a_turn_is_shown_live_with_its_rewind_as_one_reset(turn: Turn) -> None:
    await turn.say(CREATED, delta("a"))
    async with aclosing(frames(turn.js, TURN, title="T")) as given:
        assert shown(await take(given, 1)) == [("delta", 1)]
        await turn.say(*called("c", "ls"), result("c", "x"), delta("lost"))
        assert shown(await take(given, 3)) == [("tool_call", 4), ("tool_result", 5), ("delta", 6)]
        await turn.say(rewind(5), delta("b"), COMPLETED)
        assert shown(await to_end(given)) == [
            ("reset", 7),
            ("delta", 1),
            ("tool_call", 4),
            ("tool_result", 5),
            ("delta", 8),
            ("done", 9),
        ]


async def test_from_every_frame_on_the_rest_comes_without_gap_and_repeat(turn: Turn) -> None:
    await turn.say(CREATED, delta("a"), *called("c", "ls"), result("c", "x"), delta("lost"))
    async with aclosing(frames(turn.js, TURN)) as given:
        before = await take(given, 4)
        await turn.say(rewind(5), delta("b"), COMPLETED)
        after = await to_end(given)
    for place, frame in enumerate(after):
        rest = await to_end(frames(turn.js, TURN, last_event_id=frame.id))
        assert rest == after[place + 1 :]
    for frame in before:
        assert await to_end(frames(turn.js, TURN, last_event_id=frame.id)) == after


async def test_what_the_log_s_age_took_before_a_browser_saw_it_makes_it_begin_anew(
    turn: Turn,
) -> None:
    await turn.say(*(delta(str(number)) for number in range(6)), COMPLETED)
    whole = await to_end(frames(turn.js, TURN))
    # Two messages of each number are in the stream: the first three numbers go.
    await turn.js.purge_stream(STREAM, seq=7)
    assert await to_end(frames(turn.js, TURN, last_event_id=whole[2].id)) == whole[3:]
    overtaken = await to_end(frames(turn.js, TURN, last_event_id=whole[1].id))
    assert shown(overtaken[:1]) == [("reset", 3)]
    assert overtaken[1:] == whole[3:]


async def test_silence_is_no_error_but_signs_of_life(turn: Turn) -> None:
    async with aclosing(frames(turn.js, TURN, keep_alive_s=0.02)) as given:
        assert await take(given, 3) == [KEEP_ALIVE] * 3
        await turn.say(delta("a"), asks("rm"))
        async with asyncio.timeout(10):
            while (frame := await anext(given)) == KEEP_ALIVE:
                pass
        assert frame.type == "delta"


async def test_an_outage_of_the_broker_is_silence_too(nats_server: NatsServer, turn: Turn) -> None:
    await turn.say(delta("a"))
    async with aclosing(frames(turn.js, TURN, keep_alive_s=0.1)) as given:
        assert shown(await take(given, 1)) == [("delta", 0)]
        await nats_server.kill()
        assert await take(given, 5) == [KEEP_ALIVE] * 5
        await nats_server.start()
        await turn.say(delta("b"), COMPLETED)
        assert shown(await to_end(given)) == [("delta", 1), ("done", 2)]


async def test_a_browser_that_comes_during_an_outage_waits(
    nats_server: NatsServer, turn: Turn
) -> None:
    await turn.say(delta("a"), COMPLETED)
    await nats_server.kill()
    async with aclosing(frames(turn.js, TURN, keep_alive_s=0.1)) as given:
        assert await take(given, 3) == [KEEP_ALIVE] * 3
        await nats_server.start()
        assert shown(await to_end(given)) == [("delta", 0), ("done", 1)]


async def test_a_browser_that_leaves_leaves_nothing_behind(turn: Turn) -> None:
    await turn.say(delta("a"))
    given = frames(turn.js, TURN)
    await take(given, 1)
    await given.aclose()
    async for _ in ticks("the consumer is removed"):
        if not (await turn.js.stream_info(STREAM)).state.consumer_count:
            break
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in others if "anext" in repr(task)]


async def test_what_cannot_be_read_is_said(nc: Client, turn: Turn) -> None:
    with pytest.raises(ValueError, match="streams"):
        await to_end(frames(turn.js, "vystak.default.agents.x.tasks"))
    with pytest.raises(StreamNotFound):
        await to_end(frames(turn.js, "vystak.other.streams.c.t"))
    await disconnect(nc)
    with pytest.raises(NotConnected):
        await to_end(frames(turn.js, TURN))
