from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.contract.agent.places import Place, fake_place, process_place, real_place

Serve: TypeAlias = Callable[[str], AbstractAsyncContextManager[Place]]


@pytest.fixture(params=[real_place, fake_place], ids=["real", "fake"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Serve:
    """Serves a graph of the suite on each kind of agent."""
    return functools.partial(request.param, folder=tmp_path)


@pytest.fixture(
    params=[pytest.param(process_place, marks=pytest.mark.processes), fake_place],
    ids=["real", "fake"],
)
def serve_mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Serve:
    """Serves a graph on agents that can be killed."""
    return functools.partial(request.param, folder=tmp_path)
