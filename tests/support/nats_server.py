"""A real nats-server for tests: own folder, own port, restartable on its data."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

# The one that we ship with, and the oldest that we promise to work with.
RELEASES = ("newest", "oldest")
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 10.0


@dataclass(slots=True)
class NatsServer:
    """One nats-server process and the folder that outlives it.

    The first start takes a free port; every later one takes the same, so that clients reconnect.
    `config` is a configuration file, `environment` what its `$VARIABLES` stand for; `binary` is
    the program of another release than the usual one.
    """

    folder: Path
    config: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    binary: Path | None = None
    _process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Address without credentials."""
        return f"nats://127.0.0.1:{self._known_port()}"

    def url_as(self, user: str, password: str) -> str:
        """Address with credentials in it."""
        return f"nats://{user}:{password}@127.0.0.1:{self._known_port()}"

    @property
    def pid(self) -> int:
        """The process to send signals to."""
        if self._process is None:
            raise RuntimeError("nats-server is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """What every process on this folder has logged so far."""
        path = self.folder / "nats-server.log"
        return path.read_text() if path.exists() else ""

    async def start(self) -> None:
        """Start and return once clients are accepted."""
        if self._process is not None:
            raise RuntimeError("nats-server is already running")
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "nats-server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                self.port = await self._accepting_port(self._process)
        except BaseException:
            await self.kill()
            raise

    async def kill(self) -> None:
        """SIGKILL; nothing is flushed. Harmless when it is not running."""
        await self._end(gracefully=False)

    async def stop(self) -> None:
        """SIGTERM, after a bounded wait SIGKILL. Harmless when it is not running."""
        await self._end(gracefully=True)

    def _known_port(self) -> int:
        if self.port is None:
            raise RuntimeError("nats-server was never started")
        return self.port

    def _command(self) -> list[str]:
        binary = str(self.binary or nats_server_binary())
        command = [binary, "-js", "-a", "127.0.0.1", "-p", str(self.port or -1)]
        command += ["-sd", str(self.folder / "data"), "--ports_file_dir", str(self.folder)]
        return command + (["-c", str(self.config)] if self.config else [])

    async def _accepting_port(self, process: asyncio.subprocess.Process) -> int:
        ports_file = self.folder / f"nats-server_{process.pid}.ports"
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"nats-server ended at its start:\n{self.log}")
            # The file appears after the listener, and is complete once it parses.
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                address = json.loads(ports_file.read_text())["nats"][0]
                return int(address.rsplit(":", 1)[1])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), timeout=0.01)

    async def _end(self, *, gracefully: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if gracefully:
                process.terminate()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            if process.returncode is None:
                process.kill()
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)


def nats_server_binary() -> str:
    """Path of the binary that the wheel put beside this Python, else the one on PATH.

    `VYSTAK_TEST_NATS_SERVER` names another one: another release.
    """
    chosen = os.environ.get("VYSTAK_TEST_NATS_SERVER")
    if chosen:
        return chosen
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise RuntimeError("nats-server is missing: run `make setup`")
    return found


def binary_of(release: str) -> Path | None:
    """Program of one of RELEASES, `None` for the usual one; skips a test that cannot have it."""
    if release != "oldest":
        return None
    path = Path(sys.prefix) / "oldest-broker" / "bin" / "nats-server"
    if not path.exists():
        pytest.skip("the oldest nats-server is not installed: run `make setup`")
    return path


@contextlib.asynccontextmanager
async def running_nats_server(
    folder: Path,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    binary: Path | None = None,
) -> AsyncIterator[NatsServer]:
    """A started server that is stopped at the end, whatever happens in between."""
    server = NatsServer(folder, config, environment or {}, binary=binary)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
