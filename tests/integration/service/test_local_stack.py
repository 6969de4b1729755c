from __future__ import annotations

import os
import signal
import stat
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import nats
import pytest

from tests.support.waiting import ticks, until
from vystak_turns.embedded.places import StackError
from vystak_turns.embedded.stack import PARTS, LocalStack, StackOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from vystak_turns.embedded.stack import Part

pytestmark = pytest.mark.processes

# An agent that is healthy and can do nothing else.
HEALTHY = """
import http.server, sys
class Agent(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print("agent", sys.argv[1], "listens", flush=True)
http.server.ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Agent).serve_forever()
"""
AGENT = (sys.executable, "-c", HEALTHY, "{name}", "{host}", "{port}")


@asynccontextmanager
async def stack_on(
    folder: Path, restart: frozenset[Part] = frozenset(PARTS)
) -> AsyncIterator[LocalStack]:
    async with LocalStack(folder, StackOptions(AGENT, restart=restart)) as stack:
        await stack.wait_ready()
        yield stack


def alive(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_stack_gets_ready_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with stack_on(tmp_path) as stack:
        pids = [stack.pid(part) for part in PARTS]
        assert "agent assistant listens" in stack.log("agent")

    assert not any(alive(pid) for pid in pids)
    assert "stopped" in stack.log("turns")


async def test_credentials_are_new_at_every_start_and_for_the_owner_only(tmp_path: Path) -> None:
    async with stack_on(tmp_path) as stack:
        first = stack.panel_creds.read_text()
        files = (stack.panel_creds, stack.turns_creds)
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    async with stack_on(tmp_path) as stack:
        user, password = stack.panel_creds.read_text().strip().split(":")
        client = await nats.connect(stack.nats_url, user=user, password=password)
        await client.close()

    assert user == "panel"
    assert password not in first


@pytest.mark.parametrize("part", PARTS)
async def test_a_part_that_is_killed_is_started_again(tmp_path: Path, part: Part) -> None:
    async with stack_on(tmp_path) as stack:
        before = stack.pid(part)

        assert await stack.kill(part) == -signal.SIGKILL

        await until(lambda: stack.pid(part) not in (None, before), f"{part} runs again")
        await stack.wait_ready()


async def test_a_part_without_a_restart_policy_stays_down_until_it_is_started(
    tmp_path: Path,
) -> None:
    async with stack_on(tmp_path, restart=frozenset()) as stack:
        await stack.kill("turns")
        assert stack.pid("turns") is None

        await stack.start_part("turns")
        await stack.wait_ready()


async def test_a_part_is_restarted_in_order_on_demand(tmp_path: Path) -> None:
    async with stack_on(tmp_path, restart=frozenset()) as stack:
        before = stack.pid("turns")

        await stack.restart("turns")

        assert stack.pid("turns") not in (None, before)
        assert "stopped" in stack.log("turns")


async def test_a_second_stack_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with stack_on(tmp_path):
        with pytest.raises(StackError, match="already runs"):
            await LocalStack(tmp_path, StackOptions(AGENT)).start()


async def test_what_a_part_started_dies_with_it(tmp_path: Path) -> None:
    script = f'sleep 600 & echo $! > {tmp_path}/grandchild; exec {sys.executable} -c "$0" x $1 $2'
    words = ("/bin/sh", "-c", script, HEALTHY, "{host}", "{port}")
    async with LocalStack(tmp_path, StackOptions(words)) as stack:
        await stack.wait_ready()
        grandchild = int((tmp_path / "grandchild").read_text())
        assert alive(grandchild)

    async for _ in ticks("the grandchild is gone"):
        if not alive(grandchild):
            break
