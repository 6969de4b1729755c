"""Puts the parts together: the only file that knows every concrete class.

Order of a start: HTTP port, journal's lock, journal, broker, drivers, requests. Whatever is absent
(another owner, the broker, an agent) is waited for, with words in `/readyz` and in the log. A stop
undoes it in reverse order (R12).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Final, assert_never

import structlog

from vystak_turns import config, config_files
from vystak_turns.adapters import file_lock
from vystak_turns.adapters.agent_http.agent import AgentTimes, HttpAgent
from vystak_turns.adapters.agent_watch import AgentWatch
from vystak_turns.adapters.broker import Broker
from vystak_turns.adapters.http_api import HttpOptions, NotReadyError, Part, create_app
from vystak_turns.adapters.http_server import HttpServer
from vystak_turns.adapters.journal_sqlite.journal import SqliteJournal
from vystak_turns.adapters.rpc_nats import Bounds, RpcIntake, State, Tasks
from vystak_turns.adapters.system import OneThread, RandomIds, SystemClock
from vystak_turns.adapters.turnlog_nats.api import JetStreamApi
from vystak_turns.adapters.turnlog_nats.log import NatsTurnLog
from vystak_turns.adapters.turnlog_nats.streams import StreamReport, Streams, StreamState
from vystak_turns.app.ledger import Ledger
from vystak_turns.app.methods import Methods
from vystak_turns.app.supervisor import Supervisor
from vystak_turns.ports import JournalUnavailableError
from vystak_turns_rpc.stream import stream_settings

_log = structlog.get_logger(__name__)

RETRY_S: Final = 1.0
JOURNAL_TIMEOUT_S: Final = 2.0


class Lost(Exception):  # noqa: N818 - it happened
    """The process can do no more good: another one owns the journal, or the broker is gone."""


class Service:
    """One process of turn control."""

    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings
        self._places = settings.agent_places()
        self._path = config_files.journal_path_of(settings)
        self._clock = SystemClock()
        self._ids = RandomIds()
        credentials = config_files.broker_credentials(settings.nats_creds)
        self._broker = Broker(settings.servers(), credentials, settings.nats_inbox_prefix)
        api = JetStreamApi(self._broker.client, settings.broker_answer_s)
        self._wanted = tuple(
            stream_settings(base, settings.stream_max_age_s)
            for base in sorted({place.turn_base for place in self._places})
        )
        self._streams = Streams(api, self._wanted)
        self._reports: dict[str, StreamReport] = {}
        self._turn_log = NatsTurnLog(
            self._broker.client, api, self._streams, settings.broker_answer_s
        )
        self._broker.on_loss(self._turn_log.disconnected)
        tasks = [Tasks(p.name, s, p.queue_group) for p in self._places for s in p.subjects]
        bounds = Bounds(settings.max_requests_in_hand, settings.max_requests_waiting)
        self._intake = RpcIntake(
            self._broker, tasks, self._carry_out, settings.nats_inbox_prefix, bounds
        )
        self._broker.on_refusal(self._intake.refused)
        self._agents = {p.name: HttpAgent(p.url, self._agent_times()) for p in self._places}
        self._agent_watch = AgentWatch(self._agents, self._clock)
        self._journal: SqliteJournal | None = None
        self._methods: Methods | None = None
        self._journal_words = "not opened yet"
        self._stopping = False
        self._lost = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then stop in order.

        Raises:
            SettingsError, PortTakenError: nothing was started.
            Lost: the process should be started anew.

        """
        async with contextlib.AsyncExitStack() as parts:
            for agent in self._agents.values():
                parts.push_async_callback(agent.close)
            self._open_port(parts)
            self._watch(parts, self._agent_watch.run())
            starting = asyncio.create_task(self._start(parts), name="start")
            ends = [asyncio.create_task(event.wait()) for event in (stop, self._lost)]
            try:
                await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._stopping = True
                for task in (starting, *ends):
                    task.cancel()
                await asyncio.gather(starting, *ends, return_exceptions=True)
                _log.info("stopping")
        if self._lost.is_set() and not stop.is_set():
            raise Lost("see the log above; the process ends so that it can be started anew")
        _log.info("stopped")

    async def handle(self, agent: str, payload: bytes) -> bytes | None:
        """Carry out a request; raises NotReadyError when none is taken."""
        if self._stopping:
            raise NotReadyError("the service is stopping")
        return await self._carry_out(agent, payload)

    async def _carry_out(self, agent: str, payload: bytes) -> bytes | None:
        if self._methods is None:
            raise NotReadyError(self._journal_words)
        return await self._methods.handle(agent, payload)

    async def readiness(self) -> list[Part]:
        """Tell how everything stands without which no turn can be carried out."""
        return [
            self._broker_part(),
            *(self._subscription_part(p, s) for p in self._places for s in p.subjects),
            *(self._stream_part(settings.name) for settings in self._wanted),
            await self._journal_part(),
            *(self._agent_part(place) for place in self._places),
        ]

    def _open_port(self, parts: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        names = [place.name for place in self._places]
        options = HttpOptions(
            names, settings.http_host, settings.request_max_bytes, version("vystak-turns")
        )
        app = create_app(self.handle, self.readiness, options)
        server = HttpServer(app, settings.http_host, settings.http_port)
        number = server.start()
        parts.push_async_callback(server.stop)
        _log.info("HTTP port open", url=f"http://{settings.http_host}:{number}")

    async def _start(self, parts: contextlib.AsyncExitStack) -> None:
        journal = await self._open_journal(parts)
        self._broker.start()
        parts.push_async_callback(self._broker.close)
        self._watch(parts, self._keep_streams())
        supervisor, methods = self._application(journal)
        supervisor.start()
        parts.push_async_callback(supervisor.stop)
        self._watch(parts, self._pass_on(supervisor.lost_journal))
        self._watch(parts, self._pass_on(self._broker.ended))
        self._methods = methods
        self._intake.start()
        parts.push_async_callback(self._intake.stop)

    async def _open_journal(self, parts: contextlib.AsyncExitStack) -> SqliteJournal:
        lock = self._path.with_name(f"{self._path.name}.lock")
        self._journal_words = f"waits for the lock {lock}: another process owns the journal"

        def tell() -> None:
            _log.warning("another process owns the journal, waiting for its end", lock=str(lock))

        await parts.enter_async_context(file_lock.locked(lock, self._clock, tell))
        thread = OneThread("journal")
        parts.callback(thread.close)
        only = self._places[0].name if len(self._places) == 1 else ""
        journal = SqliteJournal(self._path, thread, only)
        while True:
            try:
                await journal.open(int(self._clock.now_s() * 1000))
            except JournalUnavailableError as error:
                self._journal_words = str(error)
                _log.error("the journal cannot be opened, trying on", reason=str(error))
                await self._clock.sleep(RETRY_S)
            else:
                parts.push_async_callback(journal.close)
                self._journal = journal
                _log.info(
                    "journal open", path=str(self._path), unfinished=len(journal.unfinished())
                )
                return journal

    def _application(self, journal: SqliteJournal) -> tuple[Supervisor, Methods]:
        ledger = Ledger(journal, self._clock)
        limits = self._settings.limits()
        supervisor = Supervisor(
            journal, ledger, self._turn_log, self._agents, self._clock, self._ids, limits
        )
        bases = {place.name: place.turn_base for place in self._places}
        return supervisor, Methods(journal, ledger, supervisor, self._clock, self._ids, bases)

    def _agent_times(self) -> AgentTimes:
        settings = self._settings
        return AgentTimes(
            connect_s=settings.agent_connect_s,
            answer_s=settings.agent_answer_s,
            call_s=settings.agent_call_s,
            health_s=settings.agent_health_s,
            heartbeat_s=settings.agent_heartbeat_s,
            gap_s=settings.agent_gap_s,
            event_max_bytes=settings.event_max_bytes,
        )

    def _watch(self, parts: contextlib.AsyncExitStack, work: Coroutine[None, None, None]) -> None:
        """Own a task that goes on until the stop; its failure ends the process."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._watched)

        async def end() -> None:
            task.cancel()
            await asyncio.wait({task})

        parts.push_async_callback(end)

    def _watched(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("a part of the service failed", exc_info=error)
            self._lost.set()

    async def _pass_on(self, event: asyncio.Event) -> None:
        await event.wait()
        self._lost.set()

    async def _keep_streams(self) -> None:
        """Compare the streams after every connect; make them when they are missing."""
        while True:
            await self._broker.wait_connected()
            for settings in self._wanted:
                await self._streams.look_again(settings.name)
            reports = await self._streams.ensure_all()
            for report in reports:
                self._note(report)
            if all(report.usable for report in reports):
                await self._broker.wait_lost()
            else:
                await self._clock.sleep(RETRY_S)

    def _note(self, report: StreamReport) -> None:
        before, self._reports[report.name] = self._reports.get(report.name), report
        if before == report:
            return
        words = "; ".join(report.words)
        match report.state:
            case StreamState.CREATED | StreamState.READY:
                _log.info("stream ready", stream=report.name, state=report.state.value)
            case StreamState.FOREIGN:
                _log.warning("stream with other settings, used as it is", reason=words)
            case StreamState.UNAVAILABLE:
                _log.error("stream cannot be used, trying on", stream=report.name, reason=words)
            case _:
                assert_never(report.state)

    def _broker_part(self) -> Part:
        trouble, refusal = self._broker.trouble, self._broker.refusal
        if trouble is not None:
            words = config.without_password(f"{self._settings.nats_url}: {trouble}")
            return Part(name="broker", ready=False, state="connecting", words=words)
        if refusal is not None:
            words = f"{refusal}: give our user the permissions of the role turns"
            return Part(name="broker", ready=False, state="refused", words=words)
        words = config.without_password(self._settings.nats_url)
        return Part(name="broker", ready=True, state="connected", words=words)

    def _subscription_part(self, place: config.AgentPlace, subject: str) -> Part:
        state = self._intake.state(subject)
        addition = "" if subject == place.tasks_subject else f" on {subject}"
        return Part(
            name=f"subscription {place.name}{addition}",
            ready=state is State.ON,
            state=state.value,
            words=f"{subject}, queue group {place.queue_group}",
        )

    def _stream_part(self, name: str) -> Part:
        report = self._reports.get(name)
        if report is None:
            words = "asked for once the broker is connected"
            return Part(name=f"stream {name}", ready=False, state="waiting", words=words)
        return Part(
            name=f"stream {name}",
            ready=report.usable,
            state=report.state.value,
            words="; ".join(report.words) or "as agreed",
        )

    def _agent_part(self, place: config.AgentPlace) -> Part:
        present = self._agent_watch.present(place.name)
        state = {None: "not asked yet", True: "there", False: "absent"}[present]
        return Part(
            name=f"agent {place.name}",
            ready=present is True,
            needed=False,
            state=state,
            words=config.without_password(f"{place.url}/healthz; turns wait while it is absent"),
        )

    async def _journal_part(self) -> Part:
        state, words = "waiting", self._journal_words
        if self._stopping:
            words = "the service is stopping"
        elif self._journal is not None:
            try:
                async with asyncio.timeout(JOURNAL_TIMEOUT_S):
                    await self._journal.get("")
            except JournalUnavailableError as error:
                state, words = "unreadable", str(error)
            except TimeoutError:
                state, words = "unreadable", f"no answer within {JOURNAL_TIMEOUT_S:g} s"
            else:
                return Part(name="journal", ready=True, state="open", words=str(self._path))
        return Part(name="journal", ready=False, state=state, words=words)
