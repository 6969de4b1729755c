from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from nats.aio.client import Client

from tests.integration.turnlog.places import BASE, SUBJECT, TIMEOUT_S, a_client_of, a_message
from tests.support.waiting import ticks
from vystak_turns.core.findings import Tail
from vystak_turns.ports import (
    AppendConflictError,
    AppendTooLargeError,
    LogUnavailableError,
)

if TYPE_CHECKING:
    from tests.integration.turnlog.places import Place

pytestmark = pytest.mark.broker


async def test_an_append_is_stored_with_its_headers_and_its_body_unchanged(place: Place) -> None:
    body = b'{"seq":0,  "event":{"type":"\xc3\xa4"}}'

    stream_seq = await place.log.append(a_message(body))

    stored = await place.client.jetstream().get_msg(place.settings.name, stream_seq)
    assert (stored.subject, stored.data) == (SUBJECT, body)
    assert stored.headers == {
        "Nats-Msg-Id": "t1:0:5",
        "Vystak-Token": "5",
        "Nats-Expected-Last-Subject-Sequence": "0",
    }


async def test_each_append_expects_the_one_before(place: Place) -> None:
    last = 0
    for seq in range(5):
        last = await place.log.append(a_message(message_id=f"m{seq}", expected_stream_seq=last))

    assert await place.count() == 5


@pytest.mark.parametrize("expected", [0, 7])
async def test_an_append_with_a_wrong_expectation_is_refused_and_not_stored(
    place: Place, expected: int
) -> None:
    await place.log.append(a_message())

    with pytest.raises(AppendConflictError):
        await place.log.append(a_message(message_id="other", expected_stream_seq=expected))

    assert await place.count() == 1


async def test_a_repeated_append_is_stored_once_and_can_be_recognised(place: Place) -> None:
    """Brokers before 2.12 acknowledge the first copy again, later ones report a conflict."""
    first = await place.log.append(a_message())

    with contextlib.suppress(AppendConflictError):
        assert await place.log.append(a_message()) == first

    tail = await place.log.tail(SUBJECT)
    assert tail is not None
    assert (tail.stream_seq, tail.message_id) == (first, "t1:0:5")
    assert await place.count() == 1


async def test_an_emptied_subject_expects_nothing_again(place: Place) -> None:
    last = await place.log.append(a_message())
    await place.purge()

    assert await place.log.tail(SUBJECT) is None
    assert await place.log.head_seq(SUBJECT) is None
    with pytest.raises(AppendConflictError):
        await place.log.append(a_message(message_id="a", expected_stream_seq=last))
    assert await place.log.append(a_message(message_id="b")) > last


async def test_a_message_above_the_brokers_limit_is_refused_and_the_connection_lives(
    place: Place,
) -> None:
    limit = place.client.max_payload
    with pytest.raises(AppendTooLargeError, match="max_payload"):
        await place.log.append(a_message(b"x" * limit))
    with pytest.raises(AppendTooLargeError):
        await place.log.append(a_message(b"x" * (limit - 100)))

    largest = b'{"seq":3,"event":{"type":"x","text":"%b"}}' % (b"x" * (limit - 1100))
    last = await place.log.append(a_message(largest))

    tail = await place.log.tail(SUBJECT)
    assert tail is not None
    assert (tail.stream_seq, tail.seq) == (last, 3)


async def test_a_stream_that_takes_only_small_messages_refuses_a_large_one(bare: Place) -> None:
    config = {"name": bare.settings.name, "subjects": [f"{BASE}.streams.>"], "max_msg_size": 200}
    await bare.ask(f"STREAM.CREATE.{bare.settings.name}", config)

    with pytest.raises(AppendTooLargeError):
        await bare.log.append(a_message(b"x" * 500))


async def test_many_turns_append_side_by_side(place: Place) -> None:
    async def write(turn: int) -> None:
        last = 0
        for seq in range(10):
            message = a_message(
                subject=f"{BASE}.streams.c1.t{turn}",
                message_id=f"t{turn}:{seq}:1",
                expected_stream_seq=last,
            )
            last = await place.log.append(message)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for turn in range(50):
            group.create_task(write(turn))

    assert await place.count() == 500


async def test_of_rivals_with_one_expectation_one_is_stored(place: Place) -> None:
    results = await asyncio.gather(
        *(place.log.append(a_message(message_id=f"m{n}", token=n)) for n in range(20)),
        return_exceptions=True,
    )

    assert [type(r) for r in results].count(int) == 1
    assert [type(r) for r in results].count(AppendConflictError) == 19


async def test_without_its_stream_an_append_makes_it_and_the_next_try_works(bare: Place) -> None:
    with pytest.raises(LogUnavailableError, match="stream was missing"):
        await bare.log.append(a_message())

    assert await bare.log.append(a_message()) == 1


async def test_many_turns_that_miss_a_stalled_stream_wait_for_one_look(place: Place) -> None:
    loop = asyncio.get_running_loop()
    await place.stall()
    try:
        asked_at = loop.time()
        looks = (place.streams.look_again(place.settings.name) for _ in range(50))
        await asyncio.gather(*looks)
        assert loop.time() - asked_at < TIMEOUT_S * 4
    finally:
        place.go_on()


async def test_a_deleted_stream_is_made_again(place: Place) -> None:
    await place.log.append(a_message())
    await place.ask(f"STREAM.DELETE.{place.settings.name}")

    with pytest.raises(LogUnavailableError):
        await place.log.tail(SUBJECT)

    assert await place.log.tail(SUBJECT) is None
    assert await place.log.append(a_message()) == 1


async def test_a_stream_of_nobodys_base_stays_missing(place: Place) -> None:
    message = a_message(subject="other.base.streams.c1.t1")
    for _ in range(2):
        with pytest.raises(LogUnavailableError):
            await place.log.append(message)


@pytest.mark.parametrize("subject", ["vystak.default.tasks", "a.streams.b", "x.streams.*.>"])
async def test_what_is_no_turn_subject_is_refused(place: Place, subject: str) -> None:
    with pytest.raises(LogUnavailableError):
        await place.log.tail(subject)


async def test_a_broker_that_was_never_reached_is_unavailable() -> None:
    place = a_client_of(Client())

    with pytest.raises(LogUnavailableError, match="not connected"):
        await place.log.append(a_message())
    with pytest.raises(LogUnavailableError, match="not connected"):
        await place.log.tail(SUBJECT)
    with pytest.raises(LogUnavailableError, match="not connected"):
        await place.log.head_seq(SUBJECT)


async def test_a_stalled_broker_is_unavailable_until_it_goes_on(place: Place) -> None:
    last = await place.log.append(a_message())
    loop = asyncio.get_running_loop()
    await place.stall()
    try:
        asked_at = loop.time()
        appends = [
            place.log.append(a_message(message_id=f"late{n}", expected_stream_seq=last))
            for n in range(3)
        ]
        results = await asyncio.gather(*appends, return_exceptions=True)
        assert {type(r) for r in results} == {LogUnavailableError}
        assert all("no answer within" in str(r) for r in results)
        assert TIMEOUT_S <= loop.time() - asked_at < TIMEOUT_S * 4
        with pytest.raises(LogUnavailableError):
            await place.log.tail(SUBJECT)
    finally:
        place.go_on()

    # The broker had the bytes all the time: the first of them lands late, the others conflict.
    async for _ in ticks("the late append"):
        tail = await place.log.tail(SUBJECT)
        assert tail is not None
        if tail.message_id == "late0":
            break
    assert await place.count() == 2


async def test_a_killed_broker_ends_the_wait_at_once_and_keeps_what_it_acknowledged(
    place: Place,
) -> None:
    place.log._acks._timeout_s = 60.0
    last = await place.log.append(a_message())
    await place.stall()
    waiting = asyncio.ensure_future(
        place.log.append(a_message(message_id="lost", expected_stream_seq=last))
    )
    await asyncio.sleep(0)
    await place.server.kill()

    async with asyncio.timeout(10):
        with pytest.raises(LogUnavailableError):
            await waiting
    await place.server.start()

    tail = await _tail_once_connected(place)
    assert tail.message_id in {"t1:0:5", "lost"}
    message = a_message(message_id="after", expected_stream_seq=tail.stream_seq)
    assert await place.log.append(message) == tail.stream_seq + 1


async def _tail_once_connected(place: Place) -> Tail:
    async for _ in ticks("the connection"):
        with contextlib.suppress(LogUnavailableError):
            tail = await place.log.tail(SUBJECT)
            assert tail is not None
            return tail
    raise AssertionError
