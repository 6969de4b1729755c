from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.support.nats_server import NatsServer, running_nats_server
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_client.errors import NoResponders, NotConnected, ReplyTimeout
from vystak_turns_client.streams import ensure_stream
from vystak_turns_rpc.stream import stream_settings

pytestmark = pytest.mark.broker

SETTINGS = stream_settings("vystak.default")

WITHOUT_CREATE = """
authorization { users = [ { user: u, password: p, permissions: { publish: { deny: "$JS.>" } } } ] }
"""


@pytest.fixture
async def nc(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await connect(nats_server.url)
    yield client
    await disconnect(client)


@pytest.fixture
def js(nc: Client) -> JetStreamContext:
    return nc.jetstream()


async def test_a_missing_stream_is_created_with_the_settings_of_the_contract(
    js: JetStreamContext,
) -> None:
    assert (await ensure_stream(js, SETTINGS)).created
    config = (await js.stream_info(SETTINGS.name)).config
    assert config.subjects == ["vystak.default.streams.>"]
    assert (config.max_age, config.storage, config.retention) == (3600, "file", "limits")
    assert (config.max_msgs, config.max_bytes, config.duplicate_window) == (-1, -1, 120)


async def test_an_existing_stream_is_recognised(js: JetStreamContext) -> None:
    await ensure_stream(js, SETTINGS)
    again = await ensure_stream(js, SETTINGS)
    assert (again.created, again.differences) == (False, ())


async def test_many_at_once_find_one_stream(js: JetStreamContext) -> None:
    checks = await asyncio.gather(*[ensure_stream(js, SETTINGS) for _ in range(10)])
    assert all(check.differences == () for check in checks)


async def test_a_foreign_stream_is_reported_and_not_changed(js: JetStreamContext) -> None:
    await js.add_stream(name=SETTINGS.name, subjects=[SETTINGS.subject_filter], max_age=60)
    check = await ensure_stream(js, SETTINGS)
    assert not check.created
    assert len(check.differences) == 1
    assert "max_age" in check.differences[0]
    assert (await js.stream_info(SETTINGS.name)).config.max_age == 60


async def test_without_permission_the_error_says_what_may_be_wrong(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(WITHOUT_CREATE)
    refusals: list[Exception] = []
    async with running_nats_server(tmp_path / "nats", config) as server:
        client = await connect(server.url_as("u", "p"), on_error=refusals.append)
        with pytest.raises(ReplyTimeout, match="credentials"):
            await ensure_stream(client.jetstream(timeout=0.3), SETTINGS)
        assert any("permissions violation" in str(refusal).lower() for refusal in refusals)
        await client.close()


async def test_without_turn_control_a_call_fails_at_once(nc: Client) -> None:
    with pytest.raises(NoResponders, match="turn control"):
        await TurnsClient(nc, "vystak.default.agents.a.tasks").turn_status("t", timeout_s=20)


async def test_a_silent_service_is_a_timeout(nc: Client) -> None:
    await nc.subscribe("vystak.default.agents.a.tasks")
    with pytest.raises(ReplyTimeout):
        await TurnsClient(nc, "vystak.default.agents.a.tasks").turn_status("t", timeout_s=0.1)


async def test_a_broker_that_is_gone_is_not_connected(nc: Client, nats_server: NatsServer) -> None:
    await nats_server.kill()
    with pytest.raises(NotConnected):
        await TurnsClient(nc, "vystak.default.agents.a.tasks").turn_status("t", timeout_s=0.3)
    with pytest.raises(NotConnected, match="no broker"):
        await connect(nats_server.url, timeout_s=0.5)


async def test_a_wrong_password_is_refused_without_printing_it(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(WITHOUT_CREATE)
    async with running_nats_server(tmp_path / "nats", config) as server:
        with pytest.raises(NotConnected, match=r"(?i)authorization") as caught:
            await connect(server.url_as("u", "secret"), timeout_s=1)
    assert "secret" not in str(caught.value)
