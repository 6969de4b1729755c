"""The real thing, in processes: a broker, turn control, four agents, and proxies between them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final

import httpx

from tests.crash.proxy import Proxy
from tests.support.distributions import ROOT
from tests.support.nats_server import nats_server_binary
from tests.support.waiting import ticks
from vystak_turns.embedded.child import Child
from vystak_turns.embedded.places import LOOPBACK, free_ports, new_password, program, write_creds
from vystak_turns.embedded.places import Ports as PortsOfAStack

AGENTS: Final = {
    "steps": "one_by_one",
    "threads": "in_threads",
    "branches": "side_by_side",
    "asking": "asking",
}
"""Name of an agent, and its graph in `tests.support.graphs.storm`."""

NATS: Final = "nats"
TURNS: Final = "turns"
PARTS: Final = (NATS, TURNS, *AGENTS)
START_S: Final = 90.0

# A network that stalls for longer than this is a lost one.
_HEARTBEAT_S: Final = 2.0
_TURNS_SETTINGS: Final = {
    "VYSTAK_AGENT_HEARTBEAT_S": f"{_HEARTBEAT_S:g}",
    "VYSTAK_AGENT_CALL_S": "5",
    "VYSTAK_AGENT_ANSWER_S": "10",
    "VYSTAK_BROKER_ANSWER_S": "2",
    # The storm kills thousands of times as often as the world does. Acceptance tests have the cap.
    "VYSTAK_MAX_REDRIVE_ATTEMPTS": "50",
    "VYSTAK_CAP_WAIT_S": "300",
}


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a part. Times are seconds since 1970; `code` is negative for a signal."""

    part: str
    pid: int
    ended_at: float
    code: int


@dataclass(slots=True)
class Processes:
    """All processes, on a folder that keeps what they stored and wrote."""

    folder: Path
    children: dict[str, Child]
    ports: dict[str, int]
    proxies: dict[str, Proxy]
    lives: list[Life] = field(default_factory=list)

    @property
    def nats_url(self) -> str:
        """Address of the broker for panels: around the proxy."""
        return f"nats://{LOOPBACK}:{self.ports[NATS]}"

    def creds(self, role: str) -> Path:
        """Credentials file of a role."""
        return self.folder / f"{role}.creds"

    def sessions_db(self, agent: str) -> Path:
        """File of an agent's checkpointer."""
        return self.folder / f"sessions-{agent}.db"

    @property
    def turns_db(self) -> Path:
        """File of the journal."""
        return self.folder / "turns.db"

    @property
    def steps(self) -> Path:
        """File in which the steps leave their lines."""
        return self.folder / "steps"

    def log(self, part: str) -> Path:
        """File with what a part has written."""
        return self.folder / "logs" / f"{part}.log"

    async def end(self, part: str, number: signal.Signals) -> None:
        """End a part by a signal, and wait until it is gone."""
        pid = self.children[part].pid
        assert pid is not None, f"{part} ended on its own: see {self.log(part)}"
        code = await self.children[part].kill(number)
        self.lives.append(Life(part, pid, time.time(), code))

    async def start(self, part: str) -> None:
        """Start a part again, and return once it says that it is there."""
        await self.children[part].start()
        await self.until_there(part)

    async def until_there(self, part: str) -> None:
        """Wait until a part answers: turn control with all that it needs."""
        if part == NATS:
            async for _ in ticks("the broker accepts", START_S):
                with suppress(OSError):
                    _, writer = await asyncio.open_connection(LOOPBACK, self.ports[NATS])
                    writer.close()
                    return
        path = "readyz" if part == TURNS else "healthz"
        async with httpx.AsyncClient(trust_env=False) as http:
            async for _ in ticks(f"{part} is there", START_S):
                with suppress(httpx.HTTPError):
                    url = f"http://{LOOPBACK}:{self.ports[part]}/{path}"
                    if (await http.get(url)).status_code == httpx.codes.OK:
                        return

    def pause(self, part: str) -> None:
        """SIGSTOP."""
        self._signal(part, signal.SIGSTOP)

    def go_on(self, part: str) -> None:
        """SIGCONT."""
        self._signal(part, signal.SIGCONT)

    def _signal(self, part: str, number: signal.Signals) -> None:
        pid = self.children[part].pid
        assert pid is not None, f"{part} ended on its own: see {self.log(part)}"
        os.kill(pid, number)


@asynccontextmanager
async def running_processes(folder: Path) -> AsyncIterator[Processes]:
    """Start everything, wait until it is there, and leave nothing behind."""
    (folder / "logs").mkdir(parents=True)
    (folder / "control").mkdir()
    ports = _ports()
    async with AsyncExitStack() as exits:
        proxies = {name: Proxy(port) for name, port in ports.items() if name != TURNS}
        for proxy in proxies.values():
            await exits.enter_async_context(proxy.running())
        processes = Processes(folder, {}, ports, proxies)
        _make_children(processes)
        for part in PARTS:
            exits.push_async_callback(processes.children[part].stop, 0)
            await processes.children[part].start()
        for part in PARTS:
            await processes.until_there(part)
        yield processes


def _ports() -> dict[str, int]:
    first, second = free_ports(PortsOfAStack()), free_ports(PortsOfAStack())
    found = (first.nats, first.http, first.agent, second.nats, second.http, second.agent)
    assert len(set(found)) == len(PARTS), "the system gave a port twice: start again"
    return dict(zip(PARTS, found, strict=True))


def _make_children(processes: Processes) -> None:
    passwords = {role: new_password() for role in ("turns", "panel")}
    for role, password in passwords.items():
        write_creds(processes.creds(role), role, password)
    secrets = {f"VYSTAK_NATS_{role.upper()}_PASSWORD": word for role, word in passwords.items()}
    config = str(files("vystak_turns.embedded") / "nats-server.conf")
    nats = [nats_server_binary(), "-c", config, "-a", LOOPBACK]
    nats += ["-p", str(processes.ports[NATS]), "-sd", str(processes.folder / "nats")]
    turns = [program("vystak-turns", "run `make setup`"), "serve"]
    processes.children[NATS] = _child(processes, NATS, nats, secrets)
    processes.children[TURNS] = _child(processes, TURNS, turns, _turns_environment(processes))
    for name, graph in AGENTS.items():
        words = [program("vystak-turns-agent", "run `make setup`"), "serve"]
        words += [f"tests.support.graphs.storm:{graph}", "--name", name]
        words += ["--port", str(processes.ports[name])]
        environment = {
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
            "VYSTAK_SESSIONS_PATH": str(processes.sessions_db(name)),
            "VYSTAK_AGENT_HEARTBEAT_S": f"{_HEARTBEAT_S:g}",
            "STEPS_DIR": str(processes.folder),
            "CONTROL_DIR": str(processes.folder / "control"),
        }
        processes.children[name] = _child(processes, name, words, environment)


def _child(
    processes: Processes, part: str, command: list[str], environment: dict[str, str]
) -> Child:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VYSTAK")}
    everything = {**inherited, "PYTHONUNBUFFERED": "1", **environment}
    return Child(part, command, everything, processes.log(part), lambda *_: None, restart=False)


def _turns_environment(processes: Processes) -> dict[str, str]:
    agents = {name: f"http://{LOOPBACK}:{processes.proxies[name].port}" for name in AGENTS}
    return {
        "VYSTAK_NATS_URL": f"nats://{LOOPBACK}:{processes.proxies[NATS].port}",
        "VYSTAK_NATS_CREDS": str(processes.creds("turns")),
        "VYSTAK_AGENTS": json.dumps(agents),
        "VYSTAK_TURNS_PATH": str(processes.turns_db),
        "VYSTAK_HTTP_PORT": str(processes.ports[TURNS]),
        **_TURNS_SETTINGS,
    }
