"""The real thing for acceptance tests: three processes, a panel's credentials, steered steps."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from tests.support.checkers import Logged, logged
from tests.support.distributions import ROOT
from tests.support.waiting import PATIENCE_S, ticks, until
from vystak_turns.embedded.places import program
from vystak_turns.embedded.stack import PARTS, LocalStack, Part, StackOptions
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect
from vystak_turns_client.errors import ServiceUnavailable
from vystak_turns_client.reader import follow
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.vocabulary import WireStatus

AGENT = "assistant"
TASKS_SUBJECT = f"vystak.default.agents.{AGENT}.tasks"
STREAM = "vystak-default-streams"
ENOUGH_S = 600.0


@dataclass(frozen=True, slots=True)
class Control:
    """The folder through which the graphs of `tests.support.graphs` are steered."""

    folder: Path

    def hold(self, *labels: str) -> None:
        """Let these steps begin but not end."""
        for label in labels:
            (self.folder / f"hold-{label}").touch()

    def release(self, *labels: str) -> None:
        """Let these steps end."""
        for label in labels:
            (self.folder / f"hold-{label}").unlink()

    def let_die(self, label: str, times: int | None) -> None:
        """Let the agent kill itself in this step (`input`: before it) so often, None: always."""
        (self.folder / f"die-{label}").write_text("always" if times is None else str(times))

    def started(self) -> list[str]:
        """Labels of the steps that began, each time that they did."""
        return self._lines("started")

    def completed(self) -> list[str]:
        """Labels of the steps that took effect, each time that they did."""
        return self._lines("completed")

    async def wait_started(self, label: str, times: int = 1) -> None:
        await until(lambda: self.started().count(label) >= times, f"step {label} began {times}x")

    async def wait_completed(self, label: str) -> None:
        await until(lambda: label in self.completed(), f"step {label} took effect")

    def forget(self) -> None:
        """Take all orders back and begin both logs anew, for the next turn."""
        for path in self.folder.iterdir():
            path.unlink()

    def _lines(self, log: str) -> list[str]:
        path = self.folder / log
        return path.read_text().split() if path.exists() else []


@dataclass(frozen=True, slots=True)
class TurnRef:
    """A dispatched turn."""

    turn_id: str
    subject: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Live:
    """A running stack and what a test does with it.

    `panel` has the panel's credentials. Logs are read with turn control's and the broker's plain
    interface, so that what is checked has not gone through our own reader.
    """

    stack: LocalStack
    control: Control
    client: TurnsClient
    panel: JetStreamContext
    broker: JetStreamContext

    async def mend(self) -> None:
        """Start again what a test has ended and forget what it ordered."""
        self.control.forget()
        await self.start(*(part for part in PARTS if self.stack.pid(part) is None))

    @asynccontextmanager
    async def kept_alive(self, part: Part) -> AsyncIterator[None]:
        """Start a part again whenever it dies."""

        async def keep() -> None:
            async for _ in ticks(f"{part} was watched", within_s=ENOUGH_S):
                if self.stack.pid(part) is None:
                    await self.stack.restart(part)

        keeper = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.wait({keeper})

    def show_logs(self) -> None:
        """Print what the processes wrote, for a test that failed."""
        for part in PARTS:
            print(f"--- log of {part}\n{self.stack.log(part)}")  # noqa: T201

    @property
    def panel_url(self) -> str:
        """The broker's address with the panel's credentials in it."""
        credentials = self.stack.panel_creds.read_text().strip()
        return self.stack.nats_url.replace("://", f"://{credentials}@")

    async def dispatch(self, thread_id: str | None = None, text: str = "Go.") -> TurnRef:
        """Start a turn, asking again while nobody answers."""
        turn_id = uuid.uuid4().hex
        subject = f"vystak.default.streams.{uuid.uuid4().hex}.{turn_id}"
        request = {
            "model": "",
            "input": text,
            "previous_response_id": thread_id,
            "store": True,
            "stream": True,
        }
        turn = TurnRef(turn_id, subject, request)
        await self.ask(turn)
        return turn

    async def ask(self, turn: TurnRef) -> None:
        """Send a turn's dispatch (again)."""
        async for _ in ticks("the dispatch is acknowledged"):
            with suppress(ServiceUnavailable):
                await self.client.create_detached(turn.request, turn.turn_id, turn.subject)
                return

    async def status(self, turn: TurnRef) -> TurnStatusResult:
        """Ask as a panel does: no answer means "ask again"."""
        async for _ in ticks("turn control answers"):
            with suppress(ServiceUnavailable):
                return await self.client.turn_status(turn.turn_id)
        raise AssertionError

    async def wait_status(self, turn: TurnRef, wanted: WireStatus) -> TurnStatusResult:
        """Wait for a status; a turn that ended otherwise fails the test at once."""
        async for _ in ticks(f"the turn is {wanted}"):
            status = await self.status(turn)
            if status.status is wanted:
                return status
            assert status.status in {WireStatus.RUNNING, WireStatus.PARKED}, status
        raise AssertionError

    async def log(self, turn: TurnRef) -> list[Logged]:
        """Return all that the turn's subject holds."""
        bodies: list[bytes] = []
        stream_seq = 1
        while True:
            try:
                message = await self.broker.get_msg(
                    STREAM, seq=stream_seq, subject=turn.subject, next=True
                )
            except NotFoundError:
                return logged(bodies)
            bodies.append(message.data or b"")
            stream_seq = (message.seq or 0) + 1

    async def wait_told(self, turn: TurnRef, call_id: str) -> None:
        """Wait until the log ends with this tool call and the journal knows that it does."""
        async for _ in ticks(f"{call_id} is told and recorded"):
            log = await self.log(turn)
            boundary = self.boundary_seq(turn)
            if log and log[-1].event.get("call_id") == call_id and boundary == log[-1].seq:
                return

    async def wait_end(self, turn: TurnRef, within_s: float = PATIENCE_S) -> None:
        """Follow the turn as a reader to its terminal event."""
        async with asyncio.timeout(within_s), aclosing(follow(self.panel, turn.subject)) as news:
            async for _ in news:
                pass

    async def thread(self, turn: TurnRef) -> list[BaseMessage]:
        """Return the messages of the turn's thread, as the checkpointer has them."""
        thread_id = (await self.status(turn)).thread_id
        with closing(sqlite3.connect(self.stack.places.sessions_db)) as connection:
            found = SqliteSaver(connection).get_tuple({"configurable": {"thread_id": thread_id}})
        assert found is not None, f"thread {thread_id} has no checkpoint"
        messages: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
        return messages

    async def messages_of(self, turn: TurnRef) -> list[BaseMessage]:
        """Return what the agent said and did since the thread's last input."""
        thread = await self.thread(turn)
        last_input = max(i for i, message in enumerate(thread) if message.type == "human")
        return thread[last_input + 1 :]

    def journal_rows(self) -> list[tuple[Any, ...]]:
        """Return the journal's turns, read from outside."""
        with closing(sqlite3.connect(self.stack.places.turns_db)) as connection:
            return connection.execute("SELECT * FROM detached_turns ORDER BY turn_id").fetchall()

    def boundary_seq(self, turn: TurnRef) -> int:
        """Return the seq of the turn's newest boundary, read from outside."""
        query = "SELECT boundary_seq FROM detached_turns WHERE turn_id = ?"
        with closing(sqlite3.connect(self.stack.places.turns_db)) as connection:
            (seq,) = connection.execute(query, [turn.turn_id]).fetchone()
        return int(seq)

    async def kill(self, *parts: Part, number: signal.Signals = signal.SIGKILL) -> None:
        """End parts at the same moment and wait until they are gone."""
        await asyncio.gather(*(self.stack.kill(part, number) for part in parts))

    async def start(self, *parts: Part) -> None:
        """Start parts that have ended and wait until the whole stack is ready."""
        for part in parts:
            await self.stack.restart(part)
        await self.stack.wait_ready(PATIENCE_S)

    async def checkpoint(self, thread_id: str) -> Mapping[str, Any]:
        """Ask the agent where a thread stands."""
        url = f"{self.stack.agent_url}/v1/_vystak/checkpoint"
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.get(url, params={"thread_id": thread_id})
        found: Mapping[str, Any] = answer.json()
        return found

    async def wait_thread_finished(self, thread_id: str) -> None:
        """Ask the agent until it says that nothing is left to do."""
        async for _ in ticks("the run is over"):
            if (await self.checkpoint(thread_id))["finished"]:
                return

    async def wait_stored(self, turn: TurnRef, branches: int) -> None:
        """Wait until the results of so many branches of the step in flight are on disk."""
        thread_id = (await self.status(turn)).thread_id
        query = """
            SELECT count(*) FROM writes WHERE thread_id = ? AND channel = 'messages' AND
            checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ?)
        """
        async for _ in ticks(f"{branches} branches are stored"):
            with closing(sqlite3.connect(self.stack.places.sessions_db)) as connection:
                (stored,) = connection.execute(query, [thread_id, thread_id]).fetchone()
            if stored == branches:
                return

    async def wait_refusing(self, part: Part) -> None:
        """Wait until the agent or turn control, asked to stop, takes no more work."""
        url = self.stack.agent_url if part == "agent" else self.stack.http_url
        path = "/healthz" if part == "agent" else "/readyz"
        async for _ in ticks(f"{part} takes no more work"):
            if (await _status_code(url + path)) != httpx.codes.OK:
                return

    async def readiness(self) -> tuple[int, Mapping[str, Any]]:
        """Ask turn control whether it is ready; 0 while it does not answer."""
        async with httpx.AsyncClient(trust_env=False) as http:
            try:
                answer = await http.get(f"{self.stack.http_url}/readyz")
            except httpx.HTTPError:
                return 0, {}
        return answer.status_code, json.loads(answer.text)


async def _status_code(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as http:
        try:
            return (await http.get(url)).status_code
        except httpx.HTTPError:
            return 0


@asynccontextmanager
async def live_stack(
    folder: Path, graph: str, options: StackOptions | None = None
) -> AsyncIterator[Live]:
    """Start the stack with a graph of `tests.support.graphs`; nothing restarts by itself."""
    control = Control(folder / "control")
    control.folder.mkdir(parents=True)
    options = options or stack_options(graph, control)
    async with LocalStack(folder / "stack", options) as stack:
        await stack.wait_ready(PATIENCE_S)
        panel = await connect(stack.nats_url, stack.panel_creds)
        broker = await connect(stack.nats_url, stack.turns_creds, "_INBOX_turns")
        try:
            client = TurnsClient(panel, TASKS_SUBJECT)
            yield Live(stack, control, client, panel.jetstream(), broker.jetstream())
        finally:
            await panel.close()
            await broker.close()


def stack_options(graph: str, control: Control) -> StackOptions:
    """Return the options with which a graph of ours is served."""
    agent = program("vystak-turns-agent", "run `make setup`")
    target = f"tests.support.graphs.{graph}"
    return StackOptions(
        (agent, "serve", target, "--name", "{name}", "--host", "{host}", "--port", "{port}"),
        AGENT,
        agent_environment={"PYTHONPATH": str(ROOT), "CONTROL_DIR": str(control.folder)},
        restart=frozenset(),
    )
