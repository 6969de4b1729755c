from __future__ import annotations

from typing import TYPE_CHECKING

import nats
import pytest

from tests.support.running_service import running_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from tests.support.nats_server import NatsServer
    from tests.support.running_service import RunningService


@pytest.fixture
async def service(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[RunningService]:
    """Ready, on a broker without credentials; its agent is absent."""
    async with running_service(tmp_path, nats_server.url) as running:
        await running.until_ready()
        yield running


@pytest.fixture
async def nc(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await nats.connect(nats_server.url)
    yield client
    await client.close()
