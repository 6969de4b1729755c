"""The command `vystak-turns-agent`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer
from pydantic import ValidationError

from vystak_turns_agent.app import create_app
from vystak_turns_agent.builder import GraphRefusedError, load_builder
from vystak_turns_agent.server import AgentServer
from vystak_turns_agent.settings import AgentSettings

app = typer.Typer(add_completion=False, no_args_is_help=True)
_WRONG_SETTINGS = 2


@app.callback()
def main() -> None:
    """Serve a LangGraph graph as a durable agent."""


@app.command()
def serve(
    target: Annotated[str, typer.Argument(metavar="MODULE:BUILDER", help="The graph to serve.")],
    name: Annotated[str, typer.Option(help="The agent's name.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
) -> None:
    """Serve the graph that MODULE:BUILDER names, until SIGTERM."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    sys.path.insert(0, str(Path.cwd()))
    try:
        settings = AgentSettings.from_environment(os.environ)
        application = create_app(load_builder(target), name=name, settings=settings)
    except (GraphRefusedError, ValidationError) as error:
        typer.echo(f"vystak-turns-agent: {error}", err=True)
        raise typer.Exit(_WRONG_SETTINGS) from None
    AgentServer(application, host, port).run()


if __name__ == "__main__":
    app()
