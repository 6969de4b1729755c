from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.nats_server import RELEASES, binary_of
from tests.support.roles import running_broker_with_roles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.roles import Roles


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Which nats-server: the one that we ship with, or the oldest that we promise."""
    return str(request.param)


@pytest.fixture
async def roles(tmp_path: Path, release: str) -> AsyncIterator[Roles]:
    """A broker with the shipped configuration."""
    async with running_broker_with_roles(tmp_path / "nats", binary=binary_of(release)) as started:
        yield started
