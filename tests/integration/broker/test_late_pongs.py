"""A broker that answers a flush late must not make anybody deaf."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nats.errors import FlushTimeoutError

from tests.support.waiting import until
from vystak_turns.adapters.broker import Broker
from vystak_turns_client.connection import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.broker


@asynccontextmanager
async def turn_controls(url: str) -> AsyncIterator[Client]:
    broker = Broker([url], {}, "_INBOX_turns")
    broker.start()
    await broker.wait_connected()
    yield broker.client
    await broker.close()


@asynccontextmanager
async def a_panels(url: str) -> AsyncIterator[Client]:
    client = await connect(url)
    yield client
    await client.close()


async def flush_in_vain(client: Client) -> None:
    with pytest.raises(FlushTimeoutError):
        await client.flush(timeout=1)


async def flush_and_be_cancelled(client: Client) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.flush()


@pytest.mark.parametrize("connected", [turn_controls, a_panels])
@pytest.mark.parametrize("give_up", [flush_in_vain, flush_and_be_cancelled])
async def test_a_flush_that_was_given_up_leaves_the_connection_hearing(
    nats_server: NatsServer, connected: object, give_up: object
) -> None:
    async with connected(nats_server.url) as client:  # type: ignore[operator]
        await client.request("$JS.API.INFO", b"", timeout=5)
        os.kill(nats_server.pid, signal.SIGSTOP)
        try:
            threads = Path(f"/proc/{nats_server.pid}/task")
            await until(
                lambda: all(") T " in (t / "stat").read_text() for t in threads.iterdir()),
                "the stop",
            )
            await give_up(client)  # type: ignore[operator]
        finally:
            os.kill(nats_server.pid, signal.SIGCONT)

        await client.flush()
        assert (await client.request("$JS.API.INFO", b"", timeout=5)).data
        assert client.stats["reconnects"] == 0
