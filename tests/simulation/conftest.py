from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.proof import be_quiet


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The service's own log of thousands of deaths helps nobody."""
    before = structlog.get_config()
    be_quiet()
    yield
    structlog.configure(**before)
