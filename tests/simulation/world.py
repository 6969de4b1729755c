"""One simulated world: real application code and SQLite journal, fake agents, log and time."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import json
import random
import sqlite3
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.simulation.blows import Blow, Blows, Kind, Life, Plan, Victim, When
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

AGENTS: Final = {"worker": Victim.AGENT, "other": Victim.OTHER}
BASE: Final = "vystak.default"
RESTART_S: Final = 0.5
REPLY_S: Final = 5.0
_UNITS_S: Final = 0.1  # of a blow's size, where that is a length of time
_COSTLY: Final = frozenset(
    {
        Kind.KILL,
        Kind.FREEZE,
        Kind.PAUSE,
        Kind.CUT,
        Kind.HALF_OPEN,
        Kind.TROUBLE,
        Kind.PURGE,
        Kind.DELETE,
    }
)
"""What may cost a claim without being the turn's own fault."""
LIMITS: Final = Limits(seq_block=7, stop_grace_s=5, cap_wait_s=5, retry_max_s=0.4)


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


class WatchedJournal:
    """The real journal; each commit is an effect."""

    def __init__(self, inner: SqliteJournal, blows: Blows) -> None:
        self._inner = inner
        self._blows = blows
        self.open_on_thread = inner.open_on_thread
        self.blocking_thread = inner.blocking_thread
        self.unfinished = inner.unfinished
        self.new_token = inner.new_token

    async def create(self, turn: Turn, request: Json, superseded: Turn | None) -> None:
        """Commit a new turn."""
        await self._blows.before("journal.create")
        await self._inner.create(turn, request, superseded)
        await self._blows.after()

    async def save(self, turn: Turn, boundaries: BoundaryChange | None = None) -> None:
        """Commit a changed turn."""
        await self._blows.before("journal.save")
        await self._inner.save(turn, boundaries)
        await self._blows.after()

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


@dataclass(slots=True, eq=False)
class Service:
    """One life of turn control."""

    life: Life
    context: contextvars.Context
    journal: SqliteJournal | None = None
    supervisor: Supervisor | None = None
    methods: Methods | None = None


class SimulatedWorld:
    """Service and agents, which come back a while after each death, and what is durable.

    `commands` are the names that the application's parts are made from, so that a mutation can
    put a defective one in its place.
    """

    def __init__(
        self, journal: Path, plan: Plan, *, seed: int, max_age_s: float, keepalive_s: float
    ) -> None:
        self.blows = Blows(plan, self._strike)
        self.log = FakeLog(self.blows, RESTART_S - 0.0005, max_age_s)
        self.agents = {
            name: FakeAgent(self.blows, victim, on_poison=self._kill)
            for name, victim in AGENTS.items()
        }
        self.plan = plan
        self.claims_unprovoked = 0
        self.on_cancel: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._by_victim = {agent.victim: agent for agent in self.agents.values()}
        self._journal_path = journal
        self._seed = seed
        self._limits = replace(LIMITS, stream_max_age_s=max_age_s, keepalive_s=keepalive_s)
        self._ids = itertools.count()
        self._clock = VirtualClock()
        self._service: Service | None = None
        self._services: list[Service] = []
        self._errands: set[asyncio.Task[Any]] = set()
        asyncio.get_running_loop().set_task_factory(self.blows.task_factory)

    async def start(self) -> None:
        """Start all processes."""
        for agent in self.agents.values():
            agent.start()
        await self._start_service()

    async def close(self) -> None:
        """Stop everything."""
        for service in self._services:
            self.blows.kill(service.life)
        for agent in self.agents.values():
            if agent.life is not None:
                self.blows.kill(agent.life)
        for errand in self._errands:
            errand.cancel()
        for service in self._services:
            if service.journal is not None:
                await service.journal.abandon()

    # --- turn control --------------------------------------------------------------------------

    async def _start_service(self) -> None:
        context = contextvars.Context()
        service = Service(context.run(self.blows.begin_life, Victim.SERVICE), context)
        self._service = service
        self._services.append(service)
        await context.run(asyncio.create_task, self._serve(service))

    async def _serve(self, service: Service) -> None:
        inner = SqliteJournal(self._journal_path, _inline)
        await inner.open(now_ms=1)
        service.journal = inner
        journal = WatchedJournal(inner, self.blows)
        ids = SeededIds(self._seed + service.life[1])
        ledger = Ledger(journal, self._clock)
        supervisor = Supervisor(
            journal, ledger, self.log, self.agents, self._clock, ids, self._limits
        )
        bases = dict.fromkeys(self.agents, BASE)
        service.supervisor = supervisor
        service.methods = Methods(journal, ledger, supervisor, self._clock, ids, bases)
        supervisor.start()
        self.errand(self._end_when_journal_is_lost(service))

    async def _end_when_journal_is_lost(self, service: Service) -> None:
        assert service.supervisor is not None
        await service.supervisor.lost_journal.wait()
        self.blows.kill(service.life)
        if service is self._service:
            await self._come_back(service)

    async def _come_back(self, service: Service) -> None:
        await asyncio.sleep(RESTART_S)
        if service.journal is not None and not self.blows.is_alive(service.life):
            await service.journal.abandon()
        if service is self._service:
            await self._start_service()

    async def _stop_service(self, service: Service) -> None:
        """SIGTERM: no more requests, drivers let go in order, the journal is closed."""
        methods, service.methods = service.methods, None
        if methods is None or service.supervisor is None or service.journal is None:
            return
        stopping = service.context.run(asyncio.create_task, service.supervisor.stop())
        await asyncio.wait({stopping})
        if self.blows.is_alive(service.life):
            closing = service.context.run(asyncio.create_task, service.journal.close())
            await asyncio.wait({closing})
        if self.blows.kill(service.life):
            await self._come_back(service)

    # --- blows ---------------------------------------------------------------------------------

    def errand(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something in the world outside of all processes."""
        task = contextvars.Context().run(asyncio.create_task, work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _strike(self, blow: Blow) -> None:
        agent = self._by_victim.get(blow.victim)
        if agent is not None:
            self._strike_agent(agent, blow)
        elif blow.victim is Victim.SERVICE:
            self._strike_service(blow)
        elif blow.victim is Victim.LOG:
            self._strike_log(blow)
        elif self.on_cancel is not None:
            self.errand(self.on_cancel())

    def _kill(self, victim: Victim) -> None:
        self._strike(Blow(0, When.BEFORE, victim, Kind.KILL))

    def _strike_service(self, blow: Blow) -> None:
        service = self._service
        if service is None or not self.blows.is_alive(service.life):
            return
        match blow.kind:
            case Kind.STOP:
                self.errand(self._stop_service(service))
            case Kind.FREEZE | Kind.PAUSE:
                self._freeze(service.life, blow.size)
                if blow.kind is Kind.FREEZE:
                    self.errand(self._come_back(service))
            case _:
                if self.blows.kill(service.life):
                    self.errand(self._come_back(service))

    def _strike_agent(self, agent: FakeAgent, blow: Blow) -> None:
        match blow.kind:
            case Kind.CUT:
                agent.cut()
            case Kind.HALF_OPEN:
                agent.go_silent(only_if_frozen=False)
            case Kind.TROUBLE:
                agent.trouble = blow.size
            case Kind.STOP:
                if agent.alive and not agent.draining:
                    self.errand(self._restart_agent(agent, in_order=True))
            case Kind.FREEZE | Kind.PAUSE:
                if agent.alive and agent.life is not None:
                    self._freeze(agent.life, blow.size)
                    agent.go_silent(only_if_frozen=True)
            case _:
                if agent.alive:
                    agent.die()
                    self.errand(self._restart_agent(agent, in_order=False))

    async def _restart_agent(self, agent: FakeAgent, *, in_order: bool) -> None:
        life = agent.life
        if in_order:
            await agent.stop()
        await asyncio.sleep(RESTART_S)
        if agent.life == life and not agent.alive:
            agent.start()

    def _freeze(self, life: Life, size: int) -> None:
        self.blows.freeze(life)
        asyncio.get_running_loop().call_later((size or 10) * _UNITS_S, self.blows.thaw, life)

    def _strike_log(self, blow: Blow) -> None:
        match blow.kind:
            case Kind.OUTAGE:
                now_s = self._clock.now_s()
                self.log.away_until_s = now_s + (blow.size or 10) * _UNITS_S
            case Kind.PURGE:
                self.log.purge()
            case Kind.DELETE:
                self.log.delete()
            case _:
                self.log.fault = blow.kind

    # --- what callers and checkers see ---------------------------------------------------------

    async def call(self, agent: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request as a caller would; `None`: no reply came in time."""
        service = self._service
        if service is None or service.methods is None or not self.blows.is_alive(service.life):
            return None
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        work = self._handle(service.methods, agent, json.dumps(body).encode())
        task = service.context.run(asyncio.create_task, work)
        await asyncio.wait({task}, timeout=REPLY_S)
        if not task.done() or task.cancelled():
            return None
        reply = task.result()
        return None if reply is None else dict(json.loads(reply))

    async def _handle(self, methods: Methods, agent: str, payload: bytes) -> bytes | None:
        await self.blows.thawed()
        return await methods.handle(agent, payload)

    def may_exhaust(self) -> bool:
        """Whether so much happened that a turn may have come to the cap by it."""
        costly = sum(blow.kind in _COSTLY for blow in self.plan)
        return bool(costly) and costly + self.claims_unprovoked > self._limits.max_attempts

    def redrives(self, turn_id: str) -> int:
        """Read from the journal's file how many claims of the turn ever counted."""
        connection = sqlite3.connect(self._journal_path)
        try:
            query = "SELECT redrives FROM detached_turns WHERE turn_id = ?"
            row = connection.execute(query, (turn_id,)).fetchone()
        finally:
            connection.close()
        return 0 if row is None else int(row[0])
