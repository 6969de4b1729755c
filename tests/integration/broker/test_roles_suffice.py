"""What each role is there for works with the shipped broker configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import nats.errors
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from tests.support.roles import TURNS_INBOX_PREFIX, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.msg import Msg

    from tests.support.roles import Role, Roles

pytestmark = pytest.mark.broker

STREAM = "vystak-default-streams"
FILTER = "vystak.default.streams.>"
TASKS = "vystak.default.agents.demo.tasks"
TURN = "vystak.default.streams.c1.t1"


@pytest.fixture
async def turns(roles: Roles) -> AsyncIterator[Role]:
    async with connected(roles.turns_url, inbox_prefix=TURNS_INBOX_PREFIX) as role:
        yield role
        assert role.violations == []


@pytest.fixture
async def panel(roles: Roles) -> AsyncIterator[Role]:
    async with connected(roles.panel_url) as role:
        yield role
        assert role.violations == []


async def append(turns: Role, count: int, padding: str = "") -> None:
    for seq in range(count):
        body = json.dumps({"seq": seq, "event": {"type": "x", "padding": padding}}).encode()
        await turns.js.publish(TURN, body, headers={"Nats-Msg-Id": f"t1-{seq}"})


async def test_the_panel_creates_the_stream_first_and_turn_control_finds_it_equal(
    turns: Role, panel: Role
) -> None:
    created = await panel.js.add_stream(name=STREAM, subjects=[FILTER], max_age=3600)
    found = await turns.js.add_stream(name=STREAM, subjects=[FILTER], max_age=3600)

    assert created.config == found.config


async def test_a_request_is_answered_across_the_accounts(turns: Role, panel: Role) -> None:
    async def answer(request: Msg) -> None:
        await request.respond(b"answered " + request.data)

    await turns.client.subscribe(TASKS, queue="agents.demo", cb=answer)
    await turns.client.flush()

    reply = await panel.client.request(TASKS, b"this", timeout=5)

    assert reply.data == b"answered this"


async def test_a_request_with_nobody_subscribed_fails_at_once(
    turns: Role, panel: Role, release: str
) -> None:
    if release == "oldest":
        pytest.skip("nats-server 2.10 says nothing across accounts: callers wait out their time")
    assert turns.client.is_connected
    with pytest.raises(nats.errors.NoRespondersError):
        await panel.client.request(TASKS, b"", timeout=5)


@pytest.mark.parametrize("stream", [STREAM, None])
async def test_an_ordered_push_consumer_reads_more_than_a_flow_control_window(
    turns: Role, panel: Role, stream: str | None
) -> None:
    """As the original's panel reads: nats-py's ordered consumer with the default inbox."""
    await turns.js.add_stream(name=STREAM, subjects=[FILTER], max_age=3600)
    await append(turns, 200, padding="y" * 50_000)

    subscription = await panel.js.subscribe(TURN, stream=stream, ordered_consumer=True)
    seqs = [json.loads((await subscription.next_msg(timeout=5)).data)["seq"] for _ in range(200)]
    await subscription.unsubscribe()

    assert seqs == list(range(200))


async def test_a_pull_consumer_is_made_read_acknowledged_and_deleted(
    turns: Role, panel: Role
) -> None:
    await turns.js.add_stream(name=STREAM, subjects=[FILTER], max_age=3600)
    await append(turns, 3)

    wanted = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, inactive_threshold=60)
    subscription = await panel.js.pull_subscribe(TURN, stream=STREAM, config=wanted)
    messages = await subscription.fetch(3, timeout=5)
    for message in messages:
        await message.ack_sync(timeout=5)
    consumer = await subscription.consumer_info()

    assert consumer.ack_floor is not None
    assert consumer.ack_floor.stream_seq == 3
    assert await panel.js.delete_consumer(STREAM, consumer.name)


async def test_turn_control_reads_back_the_last_message_of_a_turn(turns: Role) -> None:
    await turns.js.add_stream(name=STREAM, subjects=[FILTER], max_age=3600)
    await append(turns, 3)

    last = await turns.js.get_last_msg(STREAM, TURN)

    assert json.loads(last.data or b"")["seq"] == 2


async def test_a_killed_server_comes_back_on_its_data_and_port(roles: Roles, turns: Role) -> None:
    await turns.js.add_stream(name=STREAM, subjects=[FILTER], max_age=3600)
    await append(turns, 3)
    port = roles.server.port

    await roles.server.kill()
    await roles.server.start()

    assert roles.server.port == port
    async with connected(roles.turns_url, inbox_prefix=TURNS_INBOX_PREFIX) as again:
        assert (await again.js.stream_info(STREAM)).state.messages == 3
