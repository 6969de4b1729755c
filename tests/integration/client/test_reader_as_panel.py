from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.support.nats_server import NatsServer, running_nats_server
from vystak_turns_client import consumer
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_client.errors import NoResponders
from vystak_turns_client.reader import follow, read_all
from vystak_turns_client.streams import ensure_stream
from vystak_turns_rpc.stream import stream_settings

pytestmark = pytest.mark.broker

SHIPPED = Path(__file__).parents[3] / "service/src/vystak_turns/embedded/nats-server.conf"
TURN = "vystak.default.streams.c1.t1"
PASSWORDS = {"VYSTAK_NATS_TURNS_PASSWORD": "turns-secret", "VYSTAK_NATS_PANEL_PASSWORD": "panel-x"}


@dataclass
class Roles:
    """Both users of the shipped configuration; the panel's refusals are kept."""

    server: NatsServer
    turns: Client
    panel: Client
    refusals: list[Exception]

    @property
    def js(self) -> JetStreamContext:
        return self.panel.jetstream()

    async def append(self, *seqs: int, end: bool = False) -> None:
        """Publish as turn control does, with plain acknowledged appends."""
        for seq in seqs:
            kind = "response.completed" if end else "vystak.note"
            body = json.dumps({"seq": seq, "event": {"type": kind}}).encode()
            await self.turns.jetstream().publish(TURN, body, timeout=10)


@pytest.fixture
async def roles(tmp_path: Path) -> AsyncIterator[Roles]:
    refusals: list[Exception] = []
    async with running_nats_server(tmp_path / "nats", SHIPPED, PASSWORDS) as server:
        turns = await connect(
            server.url_as("turns", "turns-secret"), None, "_INBOX_turns", lambda _: None
        )
        panel = await connect(server.url_as("panel", "panel-x"), on_error=refusals.append)
        await ensure_stream(panel.jetstream(), stream_settings("vystak.default"))
        yield Roles(server, turns, panel, refusals)
        await disconnect(panel)
        await disconnect(turns)


async def followed(roles: Roles, seen: list[int], moved: asyncio.Event) -> None:
    async for message in follow(roles.js, TURN):
        seen.append(message.seq)
        moved.set()


async def test_a_panel_reads_a_long_turn_without_being_refused_anything(roles: Roles) -> None:
    count = 2 * consumer.BATCH + 3
    await roles.append(*range(count))
    await roles.append(count, end=True)

    assert [message.seq for message in await read_all(roles.js, TURN)] == list(range(count + 1))
    seen: list[int] = []
    await asyncio.wait_for(followed(roles, seen, asyncio.Event()), 30)
    assert seen == list(range(count + 1))
    await roles.panel.flush()
    assert roles.refusals == []


async def test_a_panel_follows_through_a_kill_of_the_broker(roles: Roles) -> None:
    seen: list[int] = []
    moved = asyncio.Event()
    await roles.append(0)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(followed(roles, seen, moved))
        await moved.wait()
        await roles.server.kill()
        await roles.server.start()
        await roles.turns.flush(timeout=20)
        await roles.append(1, 2)
        await roles.append(3, end=True)
    assert seen == [0, 1, 2, 3]


async def test_a_call_of_a_panel_fails_at_once_when_turn_control_is_down(roles: Roles) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(NoResponders):
            await TurnsClient(roles.panel, "vystak.default.agents.a.tasks").turn_status("t", 20)
