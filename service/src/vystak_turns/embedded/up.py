"""What `vystak-turns up` shows: the stack's output by part, its addresses, commands to copy."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from vystak_turns.embedded.example import PartCommand, example_agent, example_panel
from vystak_turns.embedded.places import USUAL_PORTS, Ports, StackError
from vystak_turns.embedded.stack import LocalStack, StackOptions

_COLORS: Final = {"nats": "magenta", "agent": "green", "turns": "cyan", "panel": "blue"}
# nats-server greets with forty lines of information.
_CHATTER: Final = "[INF]"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What a person may choose; `agent_command` empty: the repository's example."""

    folder: Path
    agent_name: str
    agent_command: str
    ports: Ports


async def up(options: UpOptions, stop: asyncio.Event, console: Console) -> None:
    """Run the stack until `stop` is set, then stop all of it.

    Raises:
        StackError: it cannot be started; the words say what to do.

    """
    stack = LocalStack(options.folder, _stack_options(options, console))
    await stack.start()
    try:
        console.print(f"starting, with data in {stack.places.folder}", style="dim", highlight=False)
        await _until_ready_or_stopped(stack, stop)
        if not stop.is_set():
            _show(stack, options, console)
        await stop.wait()
    finally:
        console.print("stopping", style="dim")
        await stack.stop()


def _stack_options(options: UpOptions, console: Console) -> StackOptions:
    agent, panel = _agent(options), _panel()
    return StackOptions(
        agent_command=agent.words,
        agent_name=options.agent_name,
        agent_environment=agent.environment,
        panel_command=panel.words,
        panel_environment=panel.environment,
        turns_environment={"VYSTAK_LOG_FORMAT": "console"},
        ports=options.ports,
        on_line=_Printer(console),
    )


def _agent(options: UpOptions) -> PartCommand:
    if options.agent_command:
        return PartCommand(tuple(shlex.split(options.agent_command)), {})
    return example_agent(Path.cwd())


def _panel() -> PartCommand:
    try:
        return example_panel(Path.cwd())
    except StackError:
        # An agent of one's own, outside a checkout.
        return PartCommand((), {})


async def _until_ready_or_stopped(stack: LocalStack, stop: asyncio.Event) -> None:
    ready = asyncio.create_task(stack.wait_ready())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
    finally:
        for task in (ready, stopped):
            task.cancel()
        await asyncio.gather(ready, stopped, return_exceptions=True)


def _show(stack: LocalStack, options: UpOptions, console: Console) -> None:
    lines = ["", "ready:"]
    lines += [f"  NATS          {stack.nats_url}  as the role panel: {stack.panel_creds}"]
    lines += [f"  turn control  {stack.http_url}  /readyz, /openapi.json"]
    lines += [f"  agent         {stack.agent_url}  {options.agent_name}", ""]
    if stack.options.panel_command:
        token = stack.places.panel_token.read_text(encoding="utf-8").strip()
        lines += ["open this in a browser:", f"  {stack.panel_url}/?token={token}", ""]
    lines += _notices(options.ports, stack.ports)
    lines += ["in another terminal (Ctrl-C here stops everything):"]
    lines += commands(stack, options.agent_name, f"turn-{secrets.token_hex(4)}")
    console.print("\n".join([*lines, ""]), highlight=False, soft_wrap=True, markup=False)


def _notices(wanted: Ports, used: Ports) -> list[str]:
    return [
        f"  port {getattr(wanted, part)} is taken: {part} listens on {getattr(used, part)}"
        for part in ("nats", "http", "agent", "panel")
        if getattr(wanted, part) not in (0, getattr(used, part))
    ]


def commands(stack: LocalStack, agent_name: str, turn_id: str) -> tuple[str, str, str]:
    """Return the commands that dispatch a turn, ask its status and watch it."""
    variables = {"VYSTAK_AGENT_NAME": agent_name, "VYSTAK_NATS_CREDS": _near(stack.panel_creds)}
    if stack.ports.nats != USUAL_PORTS.nats:
        variables["VYSTAK_NATS_URL"] = stack.nats_url
    turnctl = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    turnctl += f" {shlex.quote(_turnctl())}"
    return (
        f"{turnctl} dispatch --conversation try --turn-id {turn_id} 'Do the four steps'",
        f"{turnctl} status {turn_id}",
        f"{turnctl} watch try.{turn_id}",
    )


def _turnctl() -> str:
    beside = Path(sys.executable).parent / "turnctl"
    if shutil.which("turnctl") or not beside.exists():
        return "turnctl"
    return _near(beside)


def _near(path: Path) -> str:
    """Return the path as one types it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


class _Printer:
    """Prints each part's lines behind its name."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, part: str, line: str) -> None:
        if part == "nats" and _CHATTER in line:
            return
        name = Text(f"{part:>5} | ", style=_COLORS.get(part, ""))
        self._console.print(name + Text(line), soft_wrap=True)


def ports_of(
    nats: int | None, http: int | None, agent: int | None, panel: int | None = None
) -> Ports:
    """Return the chosen ports, the usual ones where none was chosen."""
    chosen = {"nats": nats, "http": http, "agent": agent, "panel": panel}
    return replace(USUAL_PORTS, **{k: v for k, v in chosen.items() if v is not None})
