"""compose.yaml in real containers: Compose as a person calls it, and what the containers hold."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from nats.js.errors import NotFoundError

from tests.support.checkers import Logged, logged
from tests.support.distributions import ROOT
from tests.support.live import STREAM, TASKS_SUBJECT, TurnRef
from tests.support.waiting import ticks
from vystak_turns.embedded.places import Ports, free_ports
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect
from vystak_turns_client.errors import ServiceUnavailable
from vystak_turns_client.reader import follow
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.vocabulary import WireStatus

_COMPOSE = str(Path(sys.executable).parent / "docker-compose")
SECRETS = ROOT / ".secrets"
CONTAINERS = {
    "nats": "vystak-nats",
    "turns": "vystak-turns",
    "agent": "vystak-assistant",
    "panel": "vystak-channel-panel",
}
DATA = "vystak-agent-assistant-data"
# A build, a start of four containers and an orderly stop, on a machine with other things to do.
BUILD_S, UP_S, PATIENCE_S = 1200.0, 180.0, 90.0


@dataclass(frozen=True, slots=True)
class Boxes:
    """The stack of compose.yaml on ports of its own."""

    ports: Ports

    async def compose(self, *arguments: str, within_s: float = UP_S) -> str:
        """Run Compose on compose.yaml and return its output; a failure shows it."""
        words = [_COMPOSE, "--project-directory", str(ROOT), *arguments]
        return await _output(words, self._environment(), within_s)

    async def shell(self, script: str, folder: Path) -> str:
        """Run what a page tells its reader to type, where `docker` is this engine."""
        docker = folder / "docker"
        docker.write_text(
            f'#!/bin/sh\nif [ "$1" = compose ]; then shift; exec {_COMPOSE} "$@"; fi\n'
            f'exec {" ".join(_podman())} "$@"\n'
        )
        docker.chmod(0o755)
        environment = self._environment()
        environment["PATH"] = f"{folder}:{environment['PATH']}"
        script = f"set -e\ncd {ROOT}\n{script}"
        return await _output(["/bin/sh", "-c", script], environment, BUILD_S)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "VYSTAK_NATS_PORT": str(self.ports.nats),
            "VYSTAK_HTTP_PORT": str(self.ports.http),
            "PANEL_PORT": str(self.ports.panel),
            "STEP_SECONDS": "1",
        }

    async def up(self, *files: Path) -> None:
        """Start what does not run, and wait until everything is healthy."""
        chosen = [word for file in (ROOT / "compose.yaml", *files) for word in ("-f", str(file))]
        await self.compose(*chosen, "up", "--detach", "--wait")

    async def fragment(self, declared: Path) -> str:
        """Return what `vystak-turns volumes` prints for a declaration."""
        words = [sys.executable, "-m", "vystak_turns", "volumes", str(declared)]
        return await _output(words, dict(os.environ), PATIENCE_S)

    async def wait_healthy(self) -> None:
        """Wait until containers that came back by themselves are healthy again."""
        async for _ in ticks("all containers are healthy", PATIENCE_S):
            if await self.is_healthy():
                return

    async def is_healthy(self) -> bool:
        """Whether every container runs and is healthy."""
        listed = await self.compose("ps", "--format", "json")
        found = [json.loads(line) for line in listed.splitlines()]
        return [one["Health"] for one in found] == ["healthy"] * len(CONTAINERS)

    async def restart(self, service: str) -> None:
        """Restart a container in order.

        The grace time is named, since podman's interface forgets the container's, unlike Docker's.
        """
        grace_s = (await self.inspect(service))["Config"]["StopTimeout"]
        await self.compose("restart", "--timeout", str(grace_s), service)

    async def kill(self, service: str) -> None:
        """SIGKILL the container's main process, as a crash would; its restart policy acts."""
        pid = int((await self.inspect(service))["State"]["Pid"])
        assert pid > 1, f"{service} does not run"
        os.kill(pid, signal.SIGKILL)

    async def inspect(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a container."""
        (found,) = json.loads(await podman("inspect", CONTAINERS[service]))
        described: dict[str, Any] = found
        return described

    async def completed(self) -> list[str]:
        """Labels of the steps that took effect, each time that they did."""
        file = (await volume_path(DATA)) / "completed.log"
        return file.read_text().split() if file.exists() else []

    async def wait_completed(self, *labels: str) -> None:
        """Wait until these steps, and no others, have taken effect at least once."""
        async for _ in ticks(f"steps {labels} took effect", PATIENCE_S):
            if set(await self.completed()) == set(labels):
                return

    async def forget_steps(self) -> None:
        """Begin the log of completed steps anew, for the next turn."""
        file = (await volume_path(DATA)) / "completed.log"
        file.unlink(missing_ok=True)

    async def row(self, turn_id: str) -> Mapping[str, Any] | None:
        """Return the turn's row, read from outside."""
        file = (await volume_path(DATA)) / "turns.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.row_factory = sqlite3.Row
            query = "SELECT * FROM detached_turns WHERE turn_id = ?"
            found = connection.execute(query, [turn_id]).fetchone()
        return None if found is None else dict(found)

    async def messages_of(self, thread_id: str) -> list[BaseMessage]:
        """Return what the agent said and did since the thread's last input."""
        file = (await volume_path(DATA)) / "sessions.db"
        with closing(sqlite3.connect(file)) as connection:
            found = SqliteSaver(connection).get_tuple({"configurable": {"thread_id": thread_id}})
        assert found is not None, f"thread {thread_id} has no checkpoint"
        thread: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
        last_input = max(i for i, message in enumerate(thread) if message.type == "human")
        return thread[last_input + 1 :]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[TurnsClient]:
        """Connect with the panel's credentials; the connection lives through restarts."""
        async with self._connection("panel", "_INBOX") as connection:
            yield TurnsClient(connection, TASKS_SUBJECT)

    async def dispatch(self, text: str = "Do the four steps") -> TurnRef:
        """Start a turn."""
        turn_id, conversation = uuid.uuid4().hex, uuid.uuid4().hex
        subject = f"vystak.default.streams.{conversation}.{turn_id}"
        request = {"model": "", "input": text, "store": True, "stream": True}
        async with self.client() as client:
            await client.create_detached(request, turn_id, subject)
        return TurnRef(turn_id, subject, request)

    async def status(self, turn: TurnRef) -> TurnStatusResult:
        """Ask as a panel does: no answer means "ask again"."""
        async with self.client() as client:
            async for _ in ticks("turn control answers", PATIENCE_S):
                with suppress(ServiceUnavailable):
                    return await client.turn_status(turn.turn_id)
        raise AssertionError

    async def wait_status(self, turn: TurnRef, wanted: WireStatus) -> TurnStatusResult:
        """Wait for a status; a turn that ended otherwise fails the test at once."""
        async for _ in ticks(f"the turn is {wanted}", PATIENCE_S):
            status = await self.status(turn)
            if status.status is wanted:
                return status
            assert status.status in {WireStatus.RUNNING, WireStatus.PARKED}, status
        raise AssertionError

    async def wait_end(self, turn: TurnRef) -> None:
        """Follow the turn as a reader to its terminal event."""
        async with (
            asyncio.timeout(PATIENCE_S),
            self._connection("panel", "_INBOX") as connection,
            aclosing(follow(connection.jetstream(), turn.subject)) as news,
        ):
            async for _ in news:
                pass

    async def log(self, turn: TurnRef) -> list[Logged]:
        """Return all that the turn's subject holds, read with turn control's credentials."""
        bodies: list[bytes] = []
        stream_seq = 1
        async with self._connection("turns", "_INBOX_turns") as connection:
            broker = connection.jetstream()
            while True:
                try:
                    message = await broker.get_msg(
                        STREAM, seq=stream_seq, subject=turn.subject, next=True
                    )
                except NotFoundError:
                    return logged(bodies)
                bodies.append(message.data or b"")
                stream_seq = (message.seq or 0) + 1

    @asynccontextmanager
    async def panel(self) -> AsyncIterator[httpx.AsyncClient]:
        """The panel's API, signed in as a program is."""
        token = (SECRETS / "panel.token").read_text().strip()
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.ports.panel}/api",
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=PATIENCE_S,
        ) as api:
            yield api

    @asynccontextmanager
    async def _connection(self, role: str, inbox_prefix: str) -> AsyncIterator[Any]:
        url = f"nats://127.0.0.1:{self.ports.nats}"
        connection = await connect(url, SECRETS / f"{role}.creds", inbox_prefix)
        try:
            yield connection
        finally:
            await connection.close()


def new_boxes() -> Boxes:
    """Return the stack on free ports; nothing is started."""
    return Boxes(free_ports(Ports()))


async def podman(*arguments: str) -> str:
    """Run the engine's own command and return its output."""
    return await _output([*_podman(), *arguments], dict(os.environ), PATIENCE_S)


async def logs(service: str) -> str:
    """Return what a container has written, to stderr as well."""
    words = [*_podman(), "logs", CONTAINERS[service]]
    return await _output(words, dict(os.environ), PATIENCE_S, asyncio.subprocess.STDOUT)


async def volumes() -> set[str]:
    """Names of all volumes."""
    return set((await podman("volume", "ls", "--quiet")).split())


async def volume_path(name: str) -> Path:
    """Where a volume's files lie on this machine."""
    return Path((await podman("volume", "inspect", name, "--format", "{{.Mountpoint}}")).strip())


def _podman() -> Sequence[str]:
    return os.environ["VYSTAK_TEST_PODMAN"].split()


async def _output(
    words: Sequence[str],
    environment: Mapping[str, str],
    within_s: float,
    stderr: int = asyncio.subprocess.PIPE,
) -> str:
    process = await asyncio.create_subprocess_exec(
        *words,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )
    try:
        async with asyncio.timeout(within_s):
            out, trouble = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise AssertionError(f"{words}: not within {within_s:g} s") from None
    assert process.returncode == 0, f"{words}: {(trouble or out).decode()[-4000:]}"
    return out.decode()
