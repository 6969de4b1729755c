"""One run: a crowd of panels in a storm, and the judgement afterwards."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from tests.crash import evidence, judge
from tests.crash.flows import Flow, flows
from tests.crash.judge import Case, Violation
from tests.crash.panel import Panel, Seen
from tests.crash.processes import NATS, TURNS, Processes, running_processes
from tests.crash.storm import Kind, Outage, Storm, Trouble
from vystak_turns_client.client import ASK_TIMEOUT_S
from vystak_turns_client.connection import connect, disconnect
from vystak_turns_rpc.methods import TurnStatusResult

# After the storm everything is there, and the longest turn takes some seconds.
CALM_S: Final = 150.0
_LOOKS_AT_PARKS: Final = 0.5
_LOOK_S: Final = 0.1
APPROVAL: Final = "vystak.approval.requested"
# How late a process may see what was sent to it before it was stalled.
_AFTERMATH_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is: `at_once` turns at a time, in a storm that lasts `longest_s` at most."""

    folder: Path
    turns: int
    seed: int
    at_once: int
    storm: Iterable[Trouble]
    longest_s: float
    say: Callable[[str], None] = lambda _: None


@dataclass(slots=True)
class Result:
    """What came of it. Times are in seconds."""

    options: Options
    took_s: float
    storm: Storm
    cases: list[Case] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    status_s: list[float] = field(default_factory=list)
    status_in_storm_s: list[float] = field(default_factory=list)
    slow: int = 0
    unanswered: int = 0
    parks_looked_at: int = 0
    lag_s: list[float] = field(default_factory=list)
    redrive_s: list[float] = field(default_factory=list)


async def run(options: Options) -> Result:
    """Carry the run out; whatever it needs is started, and ended at its end."""
    async with running_processes(options.folder) as processes:
        storm = Storm(processes, options.storm, options.say)
        broker = await connect(
            processes.nats_url, processes.creds("turns"), "_INBOX_turns", _ignore
        )
        connection = await connect(processes.nats_url, processes.creds("panel"), "_INBOX", _ignore)
        try:
            run_of = _Run(options, processes, storm, broker, connection)
            return await run_of.carry_out()
        finally:
            await disconnect(connection)
            await disconnect(broker)


class _Run:
    def __init__(
        self,
        options: Options,
        processes: Processes,
        storm: Storm,
        broker: Client,
        connection: Client,
    ) -> None:
        self._options = options
        self._processes = processes
        self._storm = storm
        self._broker = broker
        self._chance = random.Random(f"looks {options.seed}")
        self._at_park: list[Violation] = []
        self._looked = 0
        self._lag_s: list[float] = []
        self._panel = Panel(connection, options.seed, self._look_at_park)

    async def carry_out(self) -> Result:
        begun_s = time.monotonic()
        conversations = list(flows(self._options.seed, self._options.turns))
        raging = asyncio.create_task(self._storm.rage())
        crowd = asyncio.create_task(self._converse(conversations))
        measuring = asyncio.create_task(self._measure_own_lag())
        try:
            await self._let_it_rage(raging, crowd)
            self._storm.end()
            await raging
            self._options.say("the storm is over: everything is there again")
            await asyncio.wait({crowd}, timeout=CALM_S)
            if crowd.done():
                crowd.result()
        finally:
            for task in (raging, crowd, measuring):
                task.cancel()
            await asyncio.gather(raging, crowd, measuring, return_exceptions=True)
        return await self._judge(time.monotonic() - begun_s)

    async def _let_it_rage(self, raging: asyncio.Task[None], crowd: asyncio.Task[None]) -> None:
        """Return when nearly all turns have ended, or when it lasted too long."""
        last_few = max(2, self._options.turns // 10)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._options.longest_s
        told_s = loop.time()
        while loop.time() < end_s and not crowd.done():
            if raging.done():
                raging.result()
            await asyncio.wait({crowd}, timeout=0.5)
            finished = sum(turn.finished for turn in self._panel.seen)
            if finished >= self._options.turns - last_few:
                return
            if loop.time() - told_s > 10:
                told_s = loop.time()
                self._options.say(f"{finished} of {len(self._panel.seen)} turns have ended")

    async def _measure_own_lag(self) -> None:
        """Note how late the crowd itself is: what it measures of others contains that."""
        loop = asyncio.get_running_loop()
        while True:
            due = asyncio.Event()
            due_s = loop.time() + _LOOK_S
            loop.call_at(due_s, due.set)
            await due.wait()
            self._lag_s.append(loop.time() - due_s)

    async def _converse(self, conversations: Sequence[Flow]) -> None:
        room = asyncio.Semaphore(self._options.at_once)

        async def one(number: int, flow: Flow) -> None:
            try:
                await self._panel.converse(flow, number)
            finally:
                room.release()

        async with asyncio.TaskGroup() as group:
            for number, flow in enumerate(conversations):
                await room.acquire()
                group.create_task(one(number, flow))

    async def _look_at_park(self, turn: Seen, status: TurnStatusResult) -> None:
        """R3 holds at every park as well: nothing moves until somebody decides."""
        if self._chance.random() > _LOOKS_AT_PARKS or status.thread_id is None:
            return
        try:
            log = await evidence.read_subject(self._broker, turn.subject)
            sessions_db = self._processes.sessions_db(turn.step.agent)
            thread = evidence.read_thread(sessions_db, status.thread_id)
        except (NatsError, TimeoutError, KeyError, sqlite3.Error):
            return  # the broker or the agent is away just now
        self._looked += 1
        part = evidence.part_of_turn(thread, turn.tag)
        logged = [stored.logged for stored in log]
        difference = judge.shown_is_not_done(logged, part)
        if difference is not None:
            wrong, words = difference
            self._at_park.append(Violation(turn.turn_id, wrong, f"at a park: {words}"))

    async def _judge(self, took_s: float) -> Result:
        self._options.say("reading what was left behind")
        result = Result(self._options, took_s, self._storm, parks_looked_at=self._looked)
        result.lag_s = self._lag_s
        result.cases = [case async for case in self._cases()]
        result.violations += self._at_park
        for case in result.cases:
            result.violations += judge.violations(case)
        if len(self._panel.seen) < self._options.turns:
            missing = self._options.turns - len(self._panel.seen)
            words = f"R9: {missing} turns were never dispatched: the others took too long"
            result.violations.append(Violation("", judge.Wrong.LOSS, words))
        self._measure_answers(result)
        for case in result.cases:
            _measure_redrives(case, self._storm.outages, result)
        return result

    async def _cases(self) -> AsyncIterator[Case]:
        stream = await evidence.read_stream(self._broker)
        journal = evidence.read_journal(self._processes.turns_db)
        runs: dict[str, list[evidence.StepRun]] = defaultdict(list)
        for each in evidence.read_steps(self._processes.steps):
            runs[each.label.partition(".")[0]].append(each)
        lives = {life.pid: life for life in self._processes.lives}
        for turn in self._panel.seen:
            row = journal.get(turn.turn_id)
            if not turn.acknowledged_at:
                turn.wrong.append("R9: the dispatch was never acknowledged")
            case = Case(turn, stream.get(turn.subject, []), None, runs[turn.tag], row, lives)
            yield self._with_thread(case)

    def _with_thread(self, case: Case) -> Case:
        if case.row is None:
            return case
        sessions_db = self._processes.sessions_db(case.seen.step.agent)
        try:
            thread = evidence.read_thread(sessions_db, case.row["thread_id"])
            return replace(case, thread=evidence.part_of_turn(thread, case.seen.tag))
        except AssertionError as error:
            # A turn that was cancelled before it began has no thread, hence no input on it.
            if case.completed or case.runs:
                case.seen.wrong.append(f"R5: {error}")
        return case

    def _measure_answers(self, result: Result) -> None:
        for case in result.cases:
            for poll in case.seen.polls:
                excused = self._excused(poll.asked_at, poll.asked_at + poll.took_s)
                if poll.answer is not None:
                    (result.status_in_storm_s if excused else result.status_s).append(poll.took_s)
                elif excused:
                    result.unanswered += 1
                else:
                    result.slow += 1
                    words = f"no status within {ASK_TIMEOUT_S:g} s at {poll.asked_at:.3f}"
                    violation = Violation(case.seen.turn_id, judge.Wrong.STATUS, words)
                    result.violations.append(violation)

    def _excused(self, from_s: float, to_s: float) -> bool:
        """Whether turn control could not be reached at some time of these."""
        return any(
            outage.from_s < to_s and from_s < outage.there_at + _AFTERMATH_S
            for outage in self._storm.outages
            if outage.part in {NATS, TURNS}
        )


def _measure_redrives(case: Case, outages: Sequence[Outage], result: Result) -> None:
    """Note how long after its agent's health a turn that had lost it got on.

    Kills only, and only where broker and turn control were there from its health on.
    """
    kills = [o for o in outages if o.part == case.seen.step.agent and o.kind is Kind.KILL]
    for kill in kills:
        before = [stored for stored in case.log if stored.at < kill.from_s]
        if not before or before[-1].logged.type == APPROVAL:
            continue
        later = (s for s in case.log if s.at >= kill.from_s and s.token > before[-1].token)
        event = next(later, None)
        if event is None or _was_hit_besides(kill, event.at, outages):
            continue
        result.redrive_s.append(max(0.0, event.at - kill.there_at))


def _was_hit_besides(kill: Outage, until_s: float, outages: Sequence[Outage]) -> bool:
    return any(
        outage is not kill
        and outage.part in {NATS, TURNS, kill.part}
        and outage.from_s < until_s
        and kill.there_at - _AFTERMATH_S < outage.there_at
        for outage in outages
    )


def _ignore(_error: Exception) -> None:
    """Lost connections are the weather here."""


def write_evidence(result: Result, processes_folder: Path) -> Path:
    """Write the storm, the polls, and a folder for each turn with a violation."""
    folder = processes_folder / "violations"
    found: Mapping[str, list[Violation]] = defaultdict(list)
    for violation in result.violations:
        found[violation.turn_id].append(violation)
    for case in result.cases:
        if case.seen.turn_id in found:
            _write_case(folder / case.seen.tag, case, found[case.seen.turn_id])
    storm = [f"{o.from_s:.3f} {o.there_at:.3f} {o.part} {o.kind}" for o in result.storm.outages]
    folder.mkdir(exist_ok=True)
    (folder / "storm.txt").write_text("\n".join(sorted(storm)) + "\n")
    polls = [
        f"{poll.asked_at:.3f} {poll.took_s:.3f} {case.seen.tag} "
        f"{poll.answer.status if poll.answer else '-'}"
        for case in result.cases
        for poll in case.seen.polls
    ]
    (folder / "polls.txt").write_text("\n".join(sorted(polls)) + "\n")
    return folder


def _write_case(folder: Path, case: Case, violations: Sequence[Violation]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = [f"{v.wrong}: {v.words}" for v in violations]
    (folder / "violations.txt").write_text("\n".join(words) + "\n")
    messages = [
        f"{s.at:.6f} {s.stream_seq} {s.token} {json.dumps(s.logged.event)}" for s in case.log
    ]
    (folder / "messages.txt").write_text("\n".join(messages) + "\n")
    (folder / "journal.json").write_text(json.dumps(case.row, indent=1))
    thread = "\n".join(repr(message) for message in case.thread or [])
    (folder / "thread.txt").write_text(thread + "\n")
    runs = "\n".join(f"{r.started_at:.6f} {r.completed_at} {r.pid} {r.label}" for r in case.runs)
    (folder / "steps.txt").write_text(runs + "\n")
    panel = [f"{p.asked_at:.6f} {p.took_s:.3f} {p.answer}" for p in case.seen.polls]
    panel += [repr(decision) for decision in case.seen.decided]
    with suppress(ValueError):
        panel.append(f"request {json.dumps(case.seen.request)}")
    (folder / "panel.txt").write_text("\n".join(panel) + "\n")
