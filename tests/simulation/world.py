"""One simulated world: real application code and SQLite journal, fake agent, log and time."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.simulation.checkers import History, Message, StepRun
from tests.simulation.crashes import Crash, Crashes, Victim
from tests.simulation.fake_agent import FakeAgent
from tests.simulation.fake_log import FakeLog
from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.limits import Limits
from vystak_turns.app.methods import Methods
from vystak_turns.app.supervisor import Supervisor
from vystak_turns.core.turn import Boundary, Json, Turn
from vystak_turns.ports import BoundaryChange

_T = TypeVar("_T")

AGENT = "worker"
BASE = "vystak.default"
RESTART_S = 0.5
LIMITS = Limits(seq_block=7, stop_grace_s=5, cap_wait_s=5, retry_max_s=0.4)


class VirtualClock:
    """The loop's own time."""

    def now_s(self) -> float:
        """Seconds since the loop was made."""
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        """Pause in virtual time."""
        await asyncio.sleep(delay_s)


class SeededIds:
    """Names and chance from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def thread_id(self) -> str:
        """Return a thread id."""
        return f"resp_{self._random.getrandbits(96):024x}"

    def jitter(self) -> float:
        """Return a number from 0 to 1."""
        return self._random.random()


class CrashingJournal:
    """The real journal, with a death possible around each commit."""

    def __init__(self, inner: SqliteJournal, crashes: Crashes) -> None:
        self._inner = inner
        self._crashes = crashes
        self.open_on_thread = inner.open_on_thread
        self.blocking_thread = inner.blocking_thread
        self.unfinished = inner.unfinished
        self.new_token = inner.new_token

    async def create(self, turn: Turn, request: Json, superseded: Turn | None) -> None:
        """Commit a new turn."""
        self._crashes.before("journal.create")
        await self._inner.create(turn, request, superseded)
        self._crashes.after()

    async def save(self, turn: Turn, boundaries: BoundaryChange | None = None) -> None:
        """Commit a changed turn."""
        self._crashes.before("journal.save")
        await self._inner.save(turn, boundaries)
        self._crashes.after()

    async def get(self, turn_id: str) -> Turn | None:
        """Return the committed turn."""
        return await self._inner.get(turn_id)

    async def request(self, turn_id: str) -> Json:
        """Return the request."""
        return await self._inner.request(turn_id)

    async def boundaries(self, turn_id: str) -> tuple[Boundary, ...]:
        """Return the boundaries."""
        return await self._inner.boundaries(turn_id)


async def _inline(work: Callable[[], _T]) -> _T:
    await asyncio.sleep(0)
    return work()


class SimulatedWorld:
    """Service and agent, which come back a while after each death, and what is durable."""

    def __init__(self, journal: Path, plan: tuple[Crash, ...], seed: int = 0) -> None:
        self.crashes = Crashes(plan, self._on_death)
        self.agent = FakeAgent(self.crashes)
        self.log = FakeLog(self.crashes, late_after_s=RESTART_S + 0.0135)
        self._journal_path = journal
        self._seed = seed
        self._ids = itertools.count()
        self._clock = VirtualClock()
        self._service_context = contextvars.copy_context()
        self._methods: Methods | None = None
        self._journal: SqliteJournal | None = None
        self._restarts: set[asyncio.Task[None]] = set()
        asyncio.get_running_loop().set_task_factory(self.crashes.task_factory)  # type: ignore[arg-type]

    async def start(self) -> None:
        """Start both processes."""
        self.agent.start()
        await self._start_service()

    async def _start_service(self) -> None:
        context = contextvars.copy_context()
        context.run(self.crashes.begin_life, Victim.SERVICE)
        self._service_context = context
        await asyncio.create_task(self._serve(), context=context)

    async def _serve(self) -> None:
        inner = SqliteJournal(self._journal_path, _inline)
        await inner.open(now_ms=1)
        self._journal = inner
        journal = CrashingJournal(inner, self.crashes)
        ids = SeededIds(self._seed + self.crashes.lives[Victim.SERVICE])
        ledger = Ledger(journal, self._clock)
        agents = {AGENT: self.agent}
        supervisor = Supervisor(journal, ledger, self.log, agents, self._clock, ids, LIMITS)
        self._methods = Methods(journal, ledger, supervisor, self._clock, ids, {AGENT: BASE})
        supervisor.start()

    def _on_death(self, victim: Victim) -> None:
        if victim is Victim.AGENT:
            self.agent.die()
            asyncio.get_running_loop().call_later(RESTART_S, self.agent.start)
            return
        self._methods = None
        task = contextvars.Context().run(asyncio.create_task, self._come_back())
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _come_back(self) -> None:
        await asyncio.sleep(RESTART_S)
        if self._journal is not None:
            await self._journal.abandon()
        await self._start_service()

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request as a caller would; `None`: no reply came."""
        methods = self._methods
        if methods is None or not self.crashes.alive[Victim.SERVICE]:
            return None
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        asked: Awaitable[bytes | None] = asyncio.create_task(
            methods.handle(AGENT, json.dumps(body).encode()), context=self._service_context
        )
        try:
            reply = await asked
        except asyncio.CancelledError:
            return None
        if reply is None:
            return None
        decoded: dict[str, Any] = json.loads(reply)
        return decoded

    async def close(self) -> None:
        """Stop everything."""
        for victim in Victim:
            self.crashes.alive[victim] = False
        if self._journal is not None:
            await self._journal.abandon()

    def history(self, caller: Caller, expected_status: str) -> History:
        """Return what was recorded of the caller's turn."""
        turn_id = caller.turn_id
        thread = self.agent.threads.get(caller.thread_id or "")
        checkpoints = thread.checkpoints if thread else []
        mine = [c for c in checkpoints if c.turn_id == turn_id]
        return History(
            turn_id=turn_id,
            messages=tuple(
                Message(m.seq, m.token, m.event) for m in self.log.subjects.get(caller.subject, [])
            ),
            rendered=tuple(event for c in mine for event in c.shown),
            runs=tuple(
                StepRun(e.step, e.life, e.committed, e.decision)
                for e in self.agent.executions
                if e.turn_id == turn_id
            ),
            inputs=sum(c.source == "input" for c in mine),
            doubled_runs=self.agent.doubled_runs,
            agent_deaths=self.crashes.deaths[Victim.AGENT],
            acknowledged=True,
            statuses=tuple(caller.statuses),
            decisions=tuple(caller.decisions),
            expected_status=expected_status,
        )


class Caller:
    """A panel: dispatches a turn, asks for its status, and decides what it is asked."""

    def __init__(self, world: SimulatedWorld, turn_id: str, text: str) -> None:
        self._world = world
        self._text = text
        self._previous: str | None = None
        self.turn_id = turn_id
        self.subject = f"{BASE}.streams.conversation.{turn_id}"
        self.thread_id: str | None = None
        self.statuses: list[str] = []
        self.decisions: list[object] = []

    async def see_it_through(self, previous: str | None = None) -> None:
        """Run the turn to its end; retries whatever got no reply."""
        self._previous = previous
        await self._dispatch()
        while True:
            status = await self._status()
            if status["status"] == "parked":
                await self._decide(status["park_generation"])
            if status["status"] in {"done", "failed"}:
                return
            await asyncio.sleep(0.05)

    async def _dispatch(self) -> None:
        request = {"input": self._text, "previous_response_id": self._previous}
        params = {
            "request": request,
            "turn_id": self.turn_id,
            "stream_subject": self.subject,
        }
        reply = await self._until_answered("responses/createDetached", params)
        assert "result" in reply, reply

    async def _status(self) -> dict[str, Any]:
        reply = await self._until_answered("responses/turnStatus", {"turn_id": self.turn_id})
        result: dict[str, Any] = reply["result"]
        self.statuses.append(result["status"])
        self.thread_id = result.get("thread_id") or self.thread_id
        return result

    async def _decide(self, generation: int) -> None:
        decision = f"yes to {generation}"
        params = {"turn_id": self.turn_id, "resume": decision, "park_generation": generation}
        await self._until_answered("responses/resumeDetached", params)
        # No reply, and a refusal of the retry: the first one was committed before the death.
        self.decisions.append(decision)

    async def _until_answered(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        while True:
            reply = await self._world.call(method, params)
            if reply is not None:
                return reply
            await asyncio.sleep(0.05)
