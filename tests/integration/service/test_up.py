"""`vystak-turns up` as a person runs it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.distributions import ROOT
from tests.support.waiting import ticks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.processes

PATIENCE_S = 90


@asynccontextmanager
async def up(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    words = ("up", "--example", "--dir", str(folder))
    ports = ("--nats-port", "0", "--http-port", "0", "--agent-port", "0", "--panel-port", "0")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "vystak_turns", *words, *ports),
        cwd=ROOT,
        env={**os.environ, "STEP_SECONDS": "0.1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.communicate(), PATIENCE_S)


async def commands_of(process: asyncio.subprocess.Process) -> list[str]:
    """Return the commands that it prints once everything is ready."""
    assert process.stdout is not None
    found: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < 3:
            line = (await process.stdout.readline()).decode()
            assert line, "it ended before it was ready"
            if re.search(r"turnctl (dispatch|status|watch)", line):
                found.append(line.strip())
    return found


async def output_of(command: str) -> str:
    process = await asyncio.create_subprocess_shell(
        command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, output.decode()
    return output.decode()


def on_folder(folder: Path) -> list[int]:
    """Return the processes that were started for a stack on a folder."""
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{process}/environ", "rb") as environment:  # noqa: PTH123
                theirs = environment.read()
            with open(f"/proc/{process}/cmdline", "rb") as command:  # noqa: PTH123
                theirs += command.read()
        except OSError:
            continue
        if os.fsencode(folder) in theirs and int(process) != os.getpid():
            found.append(int(process))
    return found


async def test_the_printed_commands_work_as_they_are(tmp_path: Path) -> None:
    async with up(tmp_path) as process:
        dispatch, status, watch = await commands_of(process)

        turn_id = shlex.split(status)[-1]
        assert turn_id in await output_of(dispatch)
        assert "All four steps are done." in await output_of(watch)
        assert "done" in await output_of(status)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_all_of_it(tmp_path: Path, number: signal.Signals) -> None:
    async with up(tmp_path) as process:
        await commands_of(process)
        assert len(on_folder(tmp_path)) > 3

        process.send_signal(number)
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)

    assert process.returncode == 0, output.decode()
    assert on_folder(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel to tell children")
async def test_nothing_outlives_it_when_it_is_killed(tmp_path: Path) -> None:
    async with up(tmp_path) as process:
        await commands_of(process)
        process.kill()
        await asyncio.wait_for(process.communicate(), PATIENCE_S)

    async for _ in ticks("all children have ended"):
        if on_folder(tmp_path) == []:
            break
