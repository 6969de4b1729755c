"""One stack for the folder; a test leaves it running and healthy, with its data."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.support.boxes import BUILD_S, CONTAINERS, Boxes, logs, new_boxes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def built() -> AsyncIterator[Boxes]:
    """Images are built, nothing runs and nothing is kept from earlier."""
    if "VYSTAK_TEST_PODMAN" not in os.environ:
        pytest.fail("start these tests with `make test-containers`")
    boxes = new_boxes()
    await boxes.compose("down", "--volumes", "--remove-orphans")
    for service in CONTAINERS:
        await boxes.compose("build", service, within_s=BUILD_S)
    yield boxes
    await boxes.compose("down", "--volumes")


@pytest_asyncio.fixture(loop_scope="session")
async def boxes(built: Boxes, request: pytest.FixtureRequest) -> AsyncIterator[Boxes]:
    """The stack, healthy, with no step in its log."""
    if not await built.is_healthy():
        await built.up()
    await built.forget_steps()
    failed_before = request.session.testsfailed
    yield built
    if request.session.testsfailed > failed_before:
        for service in CONTAINERS:
            print(f"--- log of {service}\n{await logs(service)}")  # noqa: T201
