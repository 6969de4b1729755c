"""The command as a process: exit codes, words, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.waiting import ticks
from vystak_turns.embedded.places import Ports, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.processes

PATIENCE_S = 60
AGENTS = '{"shop": "http://127.0.0.1:1"}'
NO_BROKER = "nats://127.0.0.1:1"


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    words: str


@asynccontextmanager
async def command(*words: str, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VYSTAK_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "vystak_turns",
        *words,
        env={**environment, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def end_of(process: asyncio.subprocess.Process) -> Ended:
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode is not None
    return Ended(process.returncode, output.decode())


async def run(*words: str, **variables: str) -> Ended:
    async with command(*words, **variables) as process:
        return await end_of(process)


def served(folder: Path, port: int) -> dict[str, str]:
    return {
        "VYSTAK_AGENTS": AGENTS,
        "VYSTAK_NATS_URL": NO_BROKER,
        "VYSTAK_TURNS_PATH": str(folder / "turns.db"),
        "VYSTAK_HTTP_PORT": str(port),
    }


async def until_journal_is_open(port: int) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        async for _ in ticks("the journal is open", PATIENCE_S):
            try:
                answer = await http.get(f"http://127.0.0.1:{port}/readyz")
            except httpx.TransportError:
                continue
            parts = {part["name"]: part["state"] for part in answer.json()["parts"]}
            if parts["journal"] == "open":
                return


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "VYSTAK_AGENTS"),
        ({"VYSTAK_AGENTS": AGENTS, "VYSTAK_HTTP_PORT": "many"}, "VYSTAK_HTTP_PORT"),
        ({"VYSTAK_AGENTS": AGENTS, "VYSTAK_NATS_CREDS": "/nowhere"}, "VYSTAK_NATS_CREDS"),
        ({"VYSTAK_AGENTS": AGENTS, "VYSTAK_TURNS_PATH": "/nowhere/t.db"}, "VYSTAK_TURNS_PATH"),
    ],
)
async def test_wrong_settings_end_with_code_2_and_words(
    variables: Mapping[str, str], words: str
) -> None:
    ended = await run("serve", **variables)

    assert ended.code == 2
    assert words in ended.words
    assert "Traceback" not in ended.words


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        ended = await run("serve", **served(tmp_path, other.getsockname()[1]))

    assert ended.code == 2
    assert "VYSTAK_HTTP_PORT" in ended.words
    assert "Traceback" not in ended.words


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_in_order_also_without_a_broker(
    tmp_path: Path, number: signal.Signals
) -> None:
    port = free_ports(Ports()).http
    async with command("serve", **served(tmp_path, port)) as process:
        await until_journal_is_open(port)
        process.send_signal(number)

        ended = await end_of(process)

    assert ended.code == 0
    assert "stopped" in ended.words
    assert "Traceback" not in ended.words


async def test_a_signal_stops_it_while_it_waits_for_the_journal(tmp_path: Path) -> None:
    ports = free_ports(Ports())
    async with command("serve", **served(tmp_path, ports.http)) as owner:
        await until_journal_is_open(ports.http)
        async with command("serve", **served(tmp_path, ports.agent)) as process:
            async with httpx.AsyncClient(trust_env=False) as http:
                async for _ in ticks("the second one is up", PATIENCE_S):
                    try:
                        await http.get(f"http://127.0.0.1:{ports.agent}/healthz")
                    except httpx.TransportError:
                        continue
                    break
            process.send_signal(signal.SIGTERM)

            assert (await end_of(process)).code == 0
        assert owner.returncode is None


async def test_it_tells_its_version() -> None:
    ended = await run("--version")

    assert ended.code == 0
    assert ended.words.startswith("vystak-turns 0.")


async def test_up_without_a_known_agent_says_what_to_do(tmp_path: Path) -> None:
    here = os.getcwd()  # noqa: PTH109
    os.chdir(tmp_path)
    try:
        ended = await run("up")
    finally:
        os.chdir(here)

    assert ended.code == 1
    assert "--agent-command" in ended.words
    assert "Traceback" not in ended.words
