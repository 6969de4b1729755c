"""The command `vystak-turns`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from vystak_turns import config, logs

WRONG_SETTINGS = 2
FAILED = 1

app = typer.Typer(
    name="vystak-turns",
    help="Turn control: keeps agent turns alive across crashes of every process.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"vystak-turns {version('vystak-turns')}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    pass


@app.command()
def serve() -> None:
    """Serve the agents that the environment names, until SIGTERM or Ctrl-C.

    Exit codes: 0 after an orderly stop, 1 when it should be started anew, 2 for wrong settings.
    """
    # Each command imports only what it needs: the start is part of every recovery.
    from vystak_turns.adapters.http_server import PortTakenError  # noqa: PLC0415
    from vystak_turns.wiring import Lost, Service  # noqa: PLC0415

    async def run(settings: config.Settings) -> None:
        stop = asyncio.Event()
        stop_on_signals(stop.set)
        await Service(settings).run(stop)

    try:
        settings = config.load()
        logs.configure(settings.log_format, settings.log_level, sys.stderr)
        asyncio.run(run(settings))
    except config.SettingsError as error:
        _fail(f"wrong settings:\n{error}", WRONG_SETTINGS)
    except PortTakenError as error:
        words = f"the HTTP port cannot be opened: {error}; set VYSTAK_HTTP_HOST, VYSTAK_HTTP_PORT"
        _fail(words, WRONG_SETTINGS)
    except Lost as error:
        _fail(str(error), FAILED)


@app.command()
def up(
    folder: Annotated[
        Path, typer.Option("--dir", help="Data, credentials and logs; kept for the next time.")
    ] = Path(".vystak-turns"),
    agent_command: Annotated[
        str, typer.Option(help="Starts your agent; {name}, {host} and {port} are filled in.")
    ] = "",
    example: Annotated[
        bool, typer.Option("--example", help="The repository's example agent (the default).")
    ] = False,
    agent_name: Annotated[str, typer.Option(help="Name of the agent.")] = "assistant",
    nats_port: Annotated[int | None, typer.Option(min=0, max=65535, help="[4222]")] = None,
    http_port: Annotated[int | None, typer.Option(min=0, max=65535, help="[8130]")] = None,
    agent_port: Annotated[int | None, typer.Option(min=0, max=65535, help="[8000]")] = None,
    panel_port: Annotated[int | None, typer.Option(min=0, max=65535, help="[8100]")] = None,
) -> None:
    """Run NATS, turn control, an agent and the panel on this machine until Ctrl-C.

    Needs no Docker. The panel, a web page, is an example: it is there inside a checkout.
    """
    from rich.console import Console  # noqa: PLC0415

    from vystak_turns.embedded.places import StackError  # noqa: PLC0415
    from vystak_turns.embedded.up import UpOptions, ports_of  # noqa: PLC0415
    from vystak_turns.embedded.up import up as run_up  # noqa: PLC0415

    if example and agent_command:
        _fail("give either --example or --agent-command", WRONG_SETTINGS)
    ports = ports_of(nats_port, http_port, agent_port, panel_port)
    options = UpOptions(folder, agent_name, agent_command, ports)

    async def run() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop.set)
        await run_up(options, stop, Console())

    try:
        asyncio.run(run())
    except StackError as error:
        _fail(str(error), FAILED)


@app.command()
def schema(file: Annotated[Path, typer.Argument(help="Where to write it")]) -> None:
    """Write the OpenAPI document of the HTTP port."""
    from vystak_turns.adapters.http_api import openapi_text  # noqa: PLC0415

    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(openapi_text(version("vystak-turns")), encoding="utf-8")
    print(f"written: {file}")


@app.command()
def volumes(
    file: Annotated[Path, typer.Argument(metavar="AGENT.yaml", help="What the agent declares.")],
    agent: Annotated[str | None, typer.Option(help="Which one, if the file has several.")] = None,
    agent_service: Annotated[str, typer.Option(help="Compose service of the agent.")] = "agent",
    turns_service: Annotated[str, typer.Option(help="That of turn control.")] = "turns",
) -> None:
    """Print the Compose fragment with the one volume at /data that an agent's declaration asks for.

    A sqlite dependency claims /data with a volume of its own; else it is vystak-agent-NAME-data.
    Use it as `docker compose -f compose.yaml -f FRAGMENT up`.
    """
    from vystak_turns import volumes as rule  # noqa: PLC0415

    try:
        import yaml  # noqa: PLC0415
    except ImportError:
        _fail("this command needs PyYAML: pip install 'vystak-turns[volumes]'", FAILED)
    try:
        declared = rule.pick_agent(yaml.safe_load(file.read_text(encoding="utf-8")), agent)
        volume = rule.data_volume(declared["name"], rule.dependencies_of(declared))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, rule.DeclarationError) as error:
        _fail(f"{file}: {error}", WRONG_SETTINGS)
    services = dict.fromkeys((agent_service, turns_service))
    print(yaml.safe_dump(rule.fragment(volume, services), sort_keys=False), end="")


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Have `stop` called on the first SIGTERM or SIGINT; the second one ends the process at once.

    Must be called inside the event loop.
    """
    loop, asked = asyncio.get_running_loop(), False

    def on_signal(number: signal.Signals) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


def _fail(words: str, code: int) -> NoReturn:
    print(f"vystak-turns: {words}", file=sys.stderr)
    raise typer.Exit(code)


if __name__ == "__main__":
    main()
