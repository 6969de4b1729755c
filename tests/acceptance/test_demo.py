"""What `make demo` runs."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.support.distributions import ROOT

pytestmark = pytest.mark.processes

LIMIT_S = 90


async def test_the_demo_keeps_all_its_promises_in_time() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / "docker-panel-durable" / "demo.py"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "STEP_SECONDS": "0.5"},
    )
    output, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)

    assert process.returncode == 0, output.decode()
    assert output.decode().count("kept") == 3
