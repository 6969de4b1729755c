from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.nats_server import running_nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A broker without credentials, for tests that are not about permissions."""
    async with running_nats_server(tmp_path / "nats") as server:
        yield server
