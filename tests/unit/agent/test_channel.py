from __future__ import annotations

import asyncio
import json

import pytest

from vystak_turns_agent.channel import Channel, ReaderLostError, frame_of


async def test_waiting_frames_are_taken_together_and_the_end_is_none() -> None:
    channel = Channel(10, 1000)
    channel.send({"a": 1})
    channel.send({"b": 2})
    channel.close()
    assert await channel.take(1) == b'data: {"a":1}\n\ndata: {"b":2}\n\n'
    assert await channel.take(1) is None


async def test_silence_gives_an_empty_chunk() -> None:
    assert await Channel(10, 1000).take(0) == b""


async def test_a_waiting_reader_is_woken_by_an_event() -> None:
    channel = Channel(10, 1000)
    taking = asyncio.ensure_future(channel.take(10))
    await asyncio.sleep(0)
    channel.send({})
    assert await taking == b"data: {}\n\n"


@pytest.mark.parametrize(("max_events", "max_bytes"), [(3, 10_000), (10_000, 40)])
async def test_a_reader_too_far_behind_is_detached_and_gets_nothing_more(
    max_events: int, max_bytes: int
) -> None:
    channel = Channel(max_events, max_bytes)
    for number in range(5):
        channel.send({"number": number})
    assert channel.detached
    assert await channel.take(1) is None


async def test_events_after_the_detachment_are_dropped() -> None:
    channel = Channel(10, 1000)
    channel.detach()
    channel.send({})
    assert await channel.take(1) is None


async def test_a_catch_up_waits_for_room_and_gives_a_stalled_reader_up() -> None:
    channel = Channel(4, 10_000)
    channel.send({})
    await channel.room(0)
    channel.send({})
    waiting = asyncio.ensure_future(channel.room(10))
    await asyncio.sleep(0)
    assert not waiting.done()
    await channel.take(1)
    await waiting
    channel.send({})
    channel.send({})
    with pytest.raises(ReaderLostError):
        await channel.room(0)
    assert channel.detached


def test_a_frame_is_one_line_of_json_whatever_the_text_is() -> None:
    text = "a\nb\r\u2028ü\ud800"
    frame = frame_of({"text": text})
    assert frame.startswith(b"data: ")
    assert len(frame.decode("ascii").splitlines()) == 2
    assert json.loads(frame.removeprefix(b"data: ")) == {"text": text}
