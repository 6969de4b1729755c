from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.support.nats_server import NatsServer, running_nats_server
from vystak_turns_client import consumer
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_client.errors import Idle, NotConnected, StreamNotFound
from vystak_turns_client.reader import LoggedMessage, follow, read_all
from vystak_turns_client.streams import ensure_stream
from vystak_turns_rpc.stream import stream_settings

pytestmark = pytest.mark.broker

BASE = "vystak.default"
STREAM = "vystak-default-streams"
TURN = f"{BASE}.streams.c1.t1"
OTHER_TURN = f"{BASE}.streams.c1.t2"

PERMISSIONS = """
authorization { users = [
  { user: writer, password: w }
  { user: reader, password: r, permissions: {
      publish: { allow: [
        "$JS.API.STREAM.INFO.vystak-default-streams",
        "$JS.API.CONSUMER.CREATE.vystak-default-streams.>",
        "$JS.API.CONSUMER.MSG.NEXT.vystak-default-streams.>",
        "$JS.API.CONSUMER.DELETE.vystak-default-streams.>" ] }
      subscribe: { allow: [ "_INBOX_reader.>" ] } } }
] }
"""


def text(seq: int, words: str = "x") -> bytes:
    event = {"type": "response.output_text.delta", "item_id": "m", "delta": words}
    return json.dumps({"seq": seq, "event": event}).encode()


def completed(seq: int) -> bytes:
    event = {"type": "response.completed", "response": {"id": "resp_1"}}
    return json.dumps({"seq": seq, "event": event}).encode()


async def append(js: JetStreamContext, *bodies: bytes, subject: str = TURN) -> None:
    for body in bodies:
        await js.publish(subject, body, timeout=10)


async def collected(messages: AsyncIterator[LoggedMessage]) -> list[int]:
    async with asyncio.timeout(30):
        return [message.seq async for message in messages]


class Reading:
    """Follows the turn in a task of its own and tells how far it came."""

    def __init__(self, js: JetStreamContext, idle_s: float | None = None) -> None:
        self.seen: list[int] = []
        self._messages = follow(js, TURN, idle_s=idle_s)
        self._moved = asyncio.Condition()

    async def run(self) -> None:
        async for message in self._messages:
            async with self._moved:
                self.seen.append(message.seq)
                self._moved.notify_all()

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(20), self._moved:
            await self._moved.wait_for(lambda: len(self.seen) >= count)


@pytest.fixture
async def nc(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await connect(nats_server.url, on_error=lambda _: None)
    yield client
    await disconnect(client)


@pytest.fixture
async def js(nc: Client) -> JetStreamContext:
    context = nc.jetstream()
    await ensure_stream(context, stream_settings(BASE))
    return context


async def test_a_turn_is_read_from_its_first_message_to_its_terminal_event(
    js: JetStreamContext,
) -> None:
    await append(js, text(0), text(1), completed(2), text(3))
    await append(js, text(0), subject=OTHER_TURN)

    assert await collected(follow(js, TURN)) == [0, 1, 2]


async def test_messages_that_come_later_are_followed_live(js: JetStreamContext) -> None:
    await append(js, text(0))
    seen: list[int] = []
    async with asyncio.timeout(20), aclosing(follow(js, TURN)) as messages:
        async for message in messages:
            seen.append(message.seq)
            if message.seq < 3:
                await append(js, text(message.seq + 1))
            elif message.seq == 3:
                await append(js, completed(4))
    assert seen == [0, 1, 2, 3, 4]


async def test_more_messages_than_one_pull_brings_arrive_in_order(js: JetStreamContext) -> None:
    count = 3 * consumer.BATCH + 7
    for seq in range(count):
        await js.publish_async(TURN, text(seq))
    await js.publish_async_completed()
    await append(js, completed(count))

    assert await collected(follow(js, TURN)) == list(range(count + 1))


async def test_a_cursor_leaves_out_what_was_read(js: JetStreamContext) -> None:
    await append(js, text(0), text(1), text(2), completed(3))
    everything = await read_all(js, TURN)

    assert await collected(follow(js, TURN, after_seq=1)) == [2, 3]
    place = everything[2].stream_seq
    assert await collected(follow(js, TURN, after_stream_seq=place)) == [3]


async def test_a_cursor_behind_the_terminal_event_ends_at_once(js: JetStreamContext) -> None:
    await append(js, text(0), completed(1))

    assert await collected(follow(js, TURN, after_seq=1)) == []


async def test_foreign_messages_on_the_subject_are_skipped(js: JetStreamContext) -> None:
    await append(js, b"\xff", text(0), b"{}", b'{"seq":"1","event":{}}', completed(1))

    assert await collected(follow(js, TURN)) == [0, 1]


async def test_silence_is_reported_after_the_idle_time(js: JetStreamContext) -> None:
    await append(js, text(0))
    reading = Reading(js, idle_s=0.3)
    with pytest.raises(Idle) as caught:
        await reading.run()
    assert reading.seen == [0]
    assert caught.value.subject == TURN


async def test_a_missing_stream_is_named(nc: Client) -> None:
    with pytest.raises(StreamNotFound, match=STREAM):
        await collected(follow(nc.jetstream(), TURN))


async def test_a_subject_that_is_no_turn_is_refused(js: JetStreamContext) -> None:
    for subject in (f"{BASE}.streams.>", "nonsense", f"{BASE}.streams.a"):
        with pytest.raises(ValueError):
            await collected(follow(js, subject))


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_a_restart_of_the_broker_leaves_no_gap_and_repeats_nothing(
    js: JetStreamContext, nats_server: NatsServer, how: str
) -> None:
    await append(js, text(0), text(1))
    reading = Reading(js)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reading.run())
        await reading.reached(2)
        await getattr(nats_server, how)()
        await nats_server.start()
        writer = await connect(nats_server.url)
        await append(writer.jetstream(), text(2), text(3))
        await reading.reached(4)
        await append(writer.jetstream(), completed(4))
        await writer.close()
    assert reading.seen == [0, 1, 2, 3, 4]


async def test_a_terminal_event_sent_into_a_dead_connection_is_still_read(
    js: JetStreamContext, nc: Client, nats_server: NatsServer
) -> None:
    writer = await connect(nats_server.url)
    reading = Reading(js)
    await append(js, text(0))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reading.run())
        await reading.reached(1)
        # The broker delivers to this connection, which is cut before anything is read from it.
        wire = cast("Any", nc._transport)._io_writer.transport
        wire.pause_reading()
        await append(writer.jetstream(), completed(1))
        wire.abort()
    await writer.close()
    assert reading.seen == [0, 1]


async def test_a_consumer_removed_by_somebody_is_made_again(js: JetStreamContext) -> None:
    await append(js, text(0))
    reading = Reading(js)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(reading.run())
        await reading.reached(1)
        for info in await js.consumers_info(STREAM):
            await js.delete_consumer(STREAM, info.name)
        await append(js, completed(1))
    assert reading.seen == [0, 1]


async def test_a_stream_that_lost_its_messages_is_read_from_its_new_start(
    js: JetStreamContext,
) -> None:
    await append(js, text(0), text(1), text(2))
    reading = Reading(js)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(reading.run())
        await reading.reached(3)
        await js.delete_stream(STREAM)
        await ensure_stream(js, stream_settings(BASE))
        await append(js, text(10), completed(11))
    assert reading.seen == [0, 1, 2, 10, 11]


async def test_a_closed_connection_ends_the_reading(js: JetStreamContext, nc: Client) -> None:
    await append(js, text(0))
    reading = Reading(js)
    task = asyncio.create_task(reading.run())
    await reading.reached(1)
    await nc.close()
    with pytest.raises(NotConnected):
        await asyncio.wait_for(task, 20)


async def test_leaving_early_removes_the_consumer(js: JetStreamContext, nc: Client) -> None:
    await append(js, text(0))
    async with asyncio.timeout(20), aclosing(follow(js, TURN)) as messages:
        async for _ in messages:
            break
    await nc.flush()
    assert await js.consumers_info(STREAM) == []


async def test_read_all_returns_what_is_retained_and_does_not_wait(js: JetStreamContext) -> None:
    assert await read_all(js, TURN) == []
    count = consumer.BATCH + 5
    await append(js, *[text(seq) for seq in range(count)], b"rubbish")
    messages = await read_all(js, TURN)
    assert [message.seq for message in messages] == list(range(count))
    assert messages[0].event["delta"] == "x"


async def test_a_reader_with_only_the_documented_permissions_reads(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(PERMISSIONS)
    creds = tmp_path / "reader.creds"
    creds.write_text("reader:r\n")
    refusals: list[Exception] = []
    async with running_nats_server(tmp_path / "nats", config) as server:
        writer = await connect(server.url_as("writer", "w"))
        await ensure_stream(writer.jetstream(), stream_settings(BASE))
        await append(writer.jetstream(), text(0), completed(1))
        reader = await connect(server.url, creds, "_INBOX_reader", refusals.append)
        assert await collected(follow(reader.jetstream(), TURN)) == [0, 1]
        assert len(await read_all(reader.jetstream(), TURN)) == 2
        await reader.flush()
        assert refusals == []
        await reader.close()
        await writer.close()
