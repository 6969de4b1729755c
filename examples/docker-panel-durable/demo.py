"""A turn that survives: kill -9 of the agent, kill -9 of turn control, a restart in order.

    make demo                      about half a minute
    STEP_SECONDS=4 make demo       slower, to watch

Starts nats-server, turn control and the agent of `agent.py` on a folder of their own, dispatches
three turns as a panel would, with a panel's credentials, strikes in step three of each, and says
at the end what came of them. Exits 1 if anything is not as it should be.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from nats.js import JetStreamContext
from rich.console import Console
from screen import Screen, Verdict, show_table

from vystak_turns.embedded.example import example_agent
from vystak_turns.embedded.places import StackError
from vystak_turns.embedded.stack import LocalStack, Part, StackOptions
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect
from vystak_turns_client.errors import ServiceUnavailable
from vystak_turns_client.fold import Text, Transcript, fold
from vystak_turns_client.reader import LoggedMessage, follow, read_all
from vystak_turns_rpc.events import is_terminal
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.subjects import tasks_subject, turn_base, turn_subject
from vystak_turns_rpc.vocabulary import WireStatus

AGENT = "assistant"
LABELS = ("one", "two", "three", "four")
STRUCK = "three"
STEP_SECONDS = float(os.environ.get("STEP_SECONDS") or 1.5)
# How far into the step the blow falls.
INTO_THE_STEP = 0.2
TURN_TIMEOUT_S = 60 + 20 * STEP_SECONDS
STATUS_TIMEOUT_S = 10.0
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Blow:
    """What happens in step three of a turn, and what may come of it."""

    title: str
    part: Part
    number: signal.Signals
    may_run_twice: frozenset[str] = frozenset()
    may_cost_an_attempt: bool = True


BLOWS = (
    Blow("kill -9 of the agent", "agent", signal.SIGKILL, may_run_twice=frozenset({STRUCK})),
    Blow("kill -9 of turn control", "turns", signal.SIGKILL),
    Blow("SIGTERM of the agent", "agent", signal.SIGTERM, may_cost_an_attempt=False),
)


@dataclass(slots=True)
class Watch:
    """A reader of one turn: shows every message and notes when it came."""

    screen: Screen
    in_the_step: asyncio.Event = field(default_factory=asyncio.Event)
    arrivals: list[tuple[float, LoggedMessage]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, js: JetStreamContext, subject: str) -> None:
        """Read to the terminal event."""
        async with aclosing(follow(js, subject)) as messages:
            async for message in messages:
                self.arrivals.append((time.monotonic(), message))
                self._news.set()
                self.screen.show(message)
                if STRUCK in str(message.event.get("arguments", "")):
                    self.in_the_step.set()

    async def first_since(self, moment_s: float) -> float:
        """Wait for the first message that comes after a moment and return when it came."""
        while True:
            self._news.clear()
            came = [at_s for at_s, _ in self.arrivals if at_s > moment_s]
            if came:
                return came[0]
            await self._news.wait()


@dataclass(frozen=True, slots=True)
class Panel:
    """What a panel has: a connection with its own credentials, and a conversation."""

    client: TurnsClient
    js: JetStreamContext
    base: str
    conversation_id: str

    async def ask(self, turn_id: str, thread_id: str | None) -> str:
        """Dispatch a turn and return the subject on which it can be followed."""
        subject = turn_subject(self.base, self.conversation_id, turn_id)
        request = {
            "model": "",
            "input": "Do the four steps, please.",
            "previous_response_id": thread_id,
            "store": True,
            "stream": True,
            "user_id": "demo",
            "project_id": "demo",
        }
        await self.client.create_detached(request, turn_id, subject)
        return subject

    async def status(self, turn_id: str) -> TurnStatusResult:
        """Ask where a turn stands; no answer means that turn control is not back yet."""
        async with asyncio.timeout(STATUS_TIMEOUT_S):
            while True:
                try:
                    return await self.client.turn_status(turn_id)
                except ServiceUnavailable:
                    await asyncio.sleep(POLL_S)

    async def final_status(self, turn_id: str) -> TurnStatusResult:
        """Return the status once it is final; it is written after the terminal event."""
        async with asyncio.timeout(STATUS_TIMEOUT_S):
            while True:
                status = await self.status(turn_id)
                if status.status in {WireStatus.DONE, WireStatus.FAILED}:
                    return status
                await asyncio.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that a turn of the demo needs."""

    stack: LocalStack
    panel: Panel
    console: Console
    completion_log: Path

    def completed(self) -> list[str]:
        """Return the labels of all steps that took effect so far, of all turns."""
        log = self.completion_log
        return log.read_text(encoding="utf-8").split() if log.exists() else []


async def main() -> int:
    """Play the three turns; return the exit code."""
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="vystak-turns-demo-"))
    began = time.monotonic()
    try:
        verdicts = await perform(console, folder)
    except (StackError, ServiceUnavailable, TimeoutError) as error:
        console.print(f"\n[bold red]The demo broke off:[/] {str(error) or type(error).__name__}")
        verdicts = []
    show_table(console, verdicts, time.monotonic() - began)
    if len(verdicts) == len(BLOWS) and not any(verdict.faults for verdict in verdicts):
        shutil.rmtree(folder)
        return 0
    console.print(f"Journal, threads and logs of this run are kept in {folder}")
    return 1


async def perform(console: Console, folder: Path) -> list[Verdict]:
    """Start the stack, play every turn of one conversation, stop the stack."""
    completion_log = folder / "completed"
    example = example_agent(Path(__file__))
    options = StackOptions(
        example.words,
        AGENT,
        agent_environment={
            **example.environment,
            "COMPLETION_LOG": str(completion_log),
            "STEP_SECONDS": str(STEP_SECONDS),
        },
        restart=frozenset(),  # whoever is struck stays down until we start it again
    )
    console.print("Starting nats-server, turn control and the agent …", style="dim")
    async with LocalStack(folder, options) as stack:
        await stack.wait_ready()
        nc = await connect(stack.nats_url, stack.panel_creds)
        try:
            tasks = tasks_subject("vystak", "default", AGENT)
            conversation_id = uuid.uuid4().hex
            panel = Panel(TurnsClient(nc, tasks), nc.jetstream(), turn_base(tasks), conversation_id)
            return await play_all(Stage(stack, panel, console, completion_log))
        finally:
            await nc.close()


async def play_all(stage: Stage) -> list[Verdict]:
    """Play one turn for each blow, all on one thread."""
    verdicts: list[Verdict] = []
    thread_id: str | None = None
    for blow in BLOWS:
        verdict = await play(stage, blow, thread_id)
        thread_id = verdict.thread_id
        verdicts.append(verdict)
    return verdicts


async def play(stage: Stage, blow: Blow, thread_id: str | None) -> Verdict:
    """Dispatch a turn, strike in step three, watch it to its end and judge it."""
    stage.console.rule(f"[bold]{blow.title} in step {STRUCK}")
    earlier = len(stage.completed())
    turn_id = uuid.uuid4().hex
    subject = await stage.panel.ask(turn_id, thread_id)
    watch = Watch(Screen(stage.console))
    async with asyncio.timeout(TURN_TIMEOUT_S), asyncio.TaskGroup() as group:
        reading = group.create_task(watch.follow(stage.panel.js, subject))
        await watch.in_the_step.wait()
        await asyncio.sleep(INTO_THE_STEP * STEP_SECONDS)
        delay_s = await strike(stage, blow, watch)
        attempts = (await stage.panel.status(turn_id)).attempts or 0
        await reading
    status = await stage.panel.final_status(turn_id)
    log = await read_all(stage.panel.js, subject)
    return judge(blow, log, stage.completed()[earlier:], status, attempts, delay_s)


async def strike(stage: Stage, blow: Blow, watch: Watch) -> float:
    """End a part and start it again; return the time from its health to the next event."""
    watch.screen.say(f"✖ {blow.title} (pid {stage.stack.pid(blow.part)})")
    code = await stage.stack.kill(blow.part, blow.number)
    watch.screen.say(f"  it ended with {code}; starting it again …")
    started_at = time.monotonic()
    await stage.stack.start_part(blow.part)
    healthy_at = await health(stage.stack, blow.part)
    watch.screen.say("  it is healthy again")
    return max(0.0, await watch.first_since(started_at) - healthy_at)


async def health(stack: LocalStack, part: Part) -> float:
    """Wait until a part says that it is ready and return when that was."""
    url = f"{stack.agent_url}/healthz" if part == "agent" else f"{stack.http_url}/readyz"
    async with httpx.AsyncClient(trust_env=False) as http:
        while True:
            try:
                if (await http.get(url)).status_code == httpx.codes.OK:
                    return time.monotonic()
            except httpx.HTTPError:
                pass
            await asyncio.sleep(POLL_S)


def judge(
    blow: Blow,
    log: Sequence[LoggedMessage],
    completed: Sequence[str],
    status: TurnStatusResult,
    attempts: int,
    delay_s: float,
) -> Verdict:
    """Compare what readers were shown and what was done with what was promised."""
    seen = fold(log)
    ends = [message for message in log if is_terminal(str(message.event.get("type")))]
    once = [label for label in LABELS if times_shown(seen, label) == 1]
    ran = Counter(completed)
    at_risk = blow.may_run_twice
    twice = sorted(label for label, count in ran.items() if count > 1)
    promises = {
        "the status is done": status.status is WireStatus.DONE,
        "each step is shown once, with its result": len(once) == len(LABELS),
        "there is one reply": replies(seen) == 1,
        "the log ends with its one terminal event": len(ends) == 1 and log[-1] is ends[0],
        "seq counts up by one": [message.seq for message in log] == list(range(len(log))),
        "every step was carried out": set(ran) == set(LABELS),
        "no finished step ran again": set(twice) <= at_risk,
        "readers are told where a re-driven step begins": seen.rewinds > 0 or not at_risk,
        "an orderly stop costs no attempt": blow.may_cost_an_attempt or attempts == 0,
    }
    return Verdict(
        title=blow.title,
        struck=STRUCK,
        steps=len(LABELS),
        thread_id=status.thread_id,
        steps_once=len(once),
        replies=replies(seen),
        terminal_events=len(ends),
        rewinds=seen.rewinds,
        run_twice=tuple(twice),
        attempts=attempts,
        delay_s=delay_s,
        faults=tuple(promise for promise, kept in promises.items() if not kept),
    )


def times_shown(seen: Transcript, label: str) -> int:
    """Count the calls of a step that a reader sees with their result."""
    return sum(
        f'"{label}"' in call.arguments and call.output is not None and not call.is_error
        for call in seen.tool_calls
    )


def replies(seen: Transcript) -> int:
    """Count the messages after the last tool call: the answer to the user."""
    count = 0
    for item in reversed(seen.items):
        if not isinstance(item, Text):
            break
        count += 1
    return count


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
