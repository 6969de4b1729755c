"""Serve the panel: `python -m panel --port 8100`, on the loopback interface unless told else."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from types import FrameType

import uvicorn

from panel.app import create_app
from panel.settings import Settings, from_environment

STOP_TIMEOUT_S = 5


class Server(uvicorn.Server):
    """Ends the open event streams first: they would keep the process for ever."""

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event) -> None:
        super().__init__(config)
        self._closing = closing
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take SIGTERM or Ctrl-C."""
        self._loop.call_soon_threadsafe(self._closing.set)
        super().handle_exit(sig, frame)


async def serve(settings: Settings, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    closing = asyncio.Event()
    config = uvicorn.Config(
        create_app(settings, closing),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,  # it would show the token
        server_header=False,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
    )
    print(f"panel: http://{host}:{port}/?token={settings.token}", flush=True)
    await Server(config, closing).serve()


def main() -> None:
    """Read arguments and environment, then serve."""
    parser = argparse.ArgumentParser(prog="panel", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="[127.0.0.1]")
    parser.add_argument("--port", type=int, default=8100, help="[8100]")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        settings = from_environment(os.environ)
    except (OSError, ValueError) as error:
        sys.exit(f"panel: {error}")
    asyncio.run(serve(settings, arguments.host, arguments.port))


if __name__ == "__main__":
    main()
