from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from nats.aio.client import Client

from tests.integration.turnlog.places import Place, a_client_of
from tests.support.nats_server import RELEASES, binary_of, running_nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer


@pytest.fixture(params=RELEASES)
async def nats_server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A broker of the release that we ship with, and one of the oldest that we promise."""
    binary = binary_of(request.param)
    async with running_nats_server(tmp_path / "nats", binary=binary) as server:
        yield server


@pytest.fixture
async def bare(nats_server: NatsServer) -> AsyncIterator[Place]:
    """A connection to a broker that has no stream yet."""
    client = Client()
    place = a_client_of(client)
    place.server = nats_server

    async def lost() -> None:
        place.log.disconnected()

    async def silent(_: Exception) -> None:
        return

    await client.connect(
        nats_server.url,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0,
        disconnected_cb=lost,
        error_cb=silent,
    )
    try:
        yield place
    finally:
        with contextlib.suppress(OSError):
            await client.close()


@pytest.fixture
async def place(bare: Place) -> Place:
    """A broker with the stream in place."""
    await bare.streams.ensure_all()
    return bare
