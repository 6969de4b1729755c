"""`turnctl`: dispatch a turn, watch it, ask for its status, decide it, from a shell."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from rich.console import Console

from vystak_turns_client.cli_screen import Screen, show_status
from vystak_turns_client.cli_target import Target
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.errors import Idle, ServiceUnavailable, StreamNotFound
from vystak_turns_client.fold import Outcome
from vystak_turns_client.reader import follow
from vystak_turns_client.streams import ensure_stream
from vystak_turns_rpc.envelope import ProtocolError
from vystak_turns_rpc.errors import RpcError
from vystak_turns_rpc.stream import DEFAULT_MAX_AGE_S, stream_settings
from vystak_turns_rpc.subjects import turn_subject

TURN_FAILED = 1
USAGE = 2
REFUSED = 3
UNAVAILABLE = 4
IDLE = 5

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Durable turns from a shell.",
    epilog="Exit codes: 0 fine, 1 the turn failed, 2 wrong usage, 3 turn control refused, "
    "4 nobody answered, 5 nothing came within --idle-s.",
)

Agent = Annotated[
    str | None, typer.Option("--agent", envvar="VYSTAK_AGENT_NAME", help="Name of the agent.")
]


@app.callback()
def shared(
    ctx: typer.Context,
    url: Annotated[
        str, typer.Option(envvar="VYSTAK_NATS_URL", help="Address of the broker.")
    ] = "nats://127.0.0.1:4222",
    creds: Annotated[
        Path | None,
        typer.Option(envvar="VYSTAK_NATS_CREDS", help="A .creds file, or one line user:password."),
    ] = None,
    inbox_prefix: Annotated[
        str,
        typer.Option(envvar="VYSTAK_NATS_INBOX_PREFIX", help="Inbox these credentials may use."),
    ] = "_INBOX",
    prefix: Annotated[
        str, typer.Option(envvar="VYSTAK_NATS_SUBJECT_PREFIX", help="Subject prefix.")
    ] = "vystak",
    namespace: Annotated[
        str, typer.Option(envvar="VYSTAK_NATS_NAMESPACE", help="Namespace of the agents.")
    ] = "default",
    subject: Annotated[
        str | None,
        typer.Option(envvar="VYSTAK_NATS_SUBJECT", help="Whole tasks subject, if not derived."),
    ] = None,
) -> None:
    """Take the options that say where turn control is."""
    ctx.obj = Target(url, creds, inbox_prefix, prefix, namespace, subject)


@app.command()
def dispatch(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(help="What the user says.")],
    agent: Agent = None,
    watch_it: Annotated[bool, typer.Option("--watch", help="Show the turn until it ends.")] = False,
    turn_id: Annotated[
        str | None, typer.Option(help="Id of the turn; the same command again starts nothing new.")
    ] = None,
    conversation: Annotated[
        str | None, typer.Option(help="Id of the conversation; without it that of the turn.")
    ] = None,
    previous: Annotated[
        str | None, typer.Option("--previous-response-id", help="Thread to go on with.")
    ] = None,
    max_age_s: Annotated[
        int, typer.Option(envvar="VYSTAK_STREAM_MAX_AGE_S", help="Age limit of a new stream.")
    ] = DEFAULT_MAX_AGE_S,
) -> None:
    """Start a turn; prints its id and the command that watches it."""
    turn_id = turn_id or uuid.uuid4().hex
    request = {
        "model": "",
        "input": text,
        "previous_response_id": previous,
        "store": True,
        "stream": True,
    }
    target = _target(ctx, agent)
    _run(_dispatch(target, (conversation or turn_id, turn_id), request, max_age_s, watch_it))


@app.command()
def status(
    ctx: typer.Context,
    turn_id: Annotated[str, typer.Argument(help="Id of the turn.")],
    agent: Agent = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as it is.")] = False,
) -> None:
    """Tell where a turn stands."""
    _run(_status(_target(ctx, agent), turn_id, as_json))


@app.command()
def watch(
    ctx: typer.Context,
    turn: Annotated[str, typer.Argument(help="CONVERSATION_ID.TURN_ID, or the turn's subject.")],
    after_seq: Annotated[int, typer.Option(min=-1, help="Show only what comes after it.")] = -1,
    idle_s: Annotated[
        float | None,
        typer.Option(min=0.1, help="Give up after so many seconds of silence; else never."),
    ] = None,
) -> None:
    """Show a turn from its beginning, live until it ends."""
    _run(_watch_alone(_target(ctx, None), turn, after_seq, idle_s))


@app.command()
def resume(
    ctx: typer.Context,
    turn_id: Annotated[str, typer.Argument(help="Id of the parked turn.")],
    decision: Annotated[str, typer.Argument(metavar="JSON", help="The decision, any JSON value.")],
    agent: Agent = None,
    generation: Annotated[
        int | None, typer.Option(min=0, help="Decide this question only (park_generation).")
    ] = None,
) -> None:
    """Decide the question that a parked turn waits on; the first decision counts."""
    try:
        value = json.loads(decision)
    except ValueError as error:
        _fail(USAGE, f"the decision is not JSON: {error}. Texts need quotes: '\"yes\"'")
    _run(_resume(_target(ctx, agent), turn_id, value, generation))


async def _dispatch(
    target: Target, names: tuple[str, str], request: dict[str, Any], max_age_s: int, watch_it: bool
) -> None:
    console = Console()
    base = target.base()
    subject = turn_subject(base, *names)
    async with target.connected() as nc:
        check = await ensure_stream(nc.jetstream(), stream_settings(base, max_age_s))
        if check.differences:
            _warn(f"the stream has other settings, left as it is: {'; '.join(check.differences)}")
        await TurnsClient(nc, target.tasks_subject()).create_detached(request, names[1], subject)
        console.print(f"turn    {names[1]}", highlight=False)
        # The one line that somebody will copy must not be wrapped.
        command = f"watch   turnctl watch {names[0]}.{names[1]}"
        console.print(command, highlight=False, soft_wrap=True)
        if watch_it:
            await _watch(nc.jetstream(), subject, -1, None, console)


async def _status(target: Target, turn_id: str, as_json: bool) -> None:
    async with target.asking() as client:
        answer = await client.turn_status(turn_id)
    if as_json:
        print(answer.model_dump_json())
    else:
        show_status(Console(), turn_id, answer)


async def _watch_alone(target: Target, turn: str, after_seq: int, idle_s: float | None) -> None:
    subject = target.turn_subject(turn)
    async with target.connected() as nc:
        await _watch(nc.jetstream(), subject, after_seq, idle_s, Console())


async def _watch(
    js: JetStreamContext, subject: str, after_seq: int, idle_s: float | None, console: Console
) -> None:
    screen = Screen(console, turn_id=subject.rsplit(".", 1)[-1])
    messages = follow(js, subject, after_seq=after_seq, idle_s=idle_s)
    async with aclosing(messages):
        async for message in messages:
            screen.show(message)
    end = screen.transcript().end
    if end is not None and end.outcome is Outcome.FAILED:
        raise typer.Exit(TURN_FAILED)


async def _resume(target: Target, turn_id: str, value: Any, generation: int | None) -> None:
    async with target.asking() as client:
        await client.resume_detached(turn_id, value, park_generation=generation)
    print(f"decided: turn {turn_id} goes on")


def _target(ctx: typer.Context, agent: str | None) -> Target:
    target = ctx.obj
    assert isinstance(target, Target)
    return replace(target, agent=agent)


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except RpcError as error:
        _fail(REFUSED, f"turn control refused: {error}")
    except (ServiceUnavailable, StreamNotFound, ProtocolError, NatsError) as error:
        _fail(UNAVAILABLE, str(error))
    except Idle as error:
        _fail(IDLE, f"{error}: `turnctl status` tells whether the turn still runs")
    except ValueError as error:
        _fail(USAGE, str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _warn(message: str) -> None:
    Console(stderr=True).print(f"turnctl: {message}", style="yellow", markup=False, soft_wrap=True)


def _fail(code: int, message: str) -> NoReturn:
    Console(stderr=True).print(f"turnctl: {message}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    app()
