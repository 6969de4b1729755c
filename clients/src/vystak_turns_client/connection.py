"""Connecting to the broker with the settings that a long-lived client needs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nats import errors as nats_errors
from nats.aio.client import Client

from vystak_turns_client.errors import NotConnected

CONNECT_TIMEOUT_S: Final = 5.0
PING_INTERVAL_S: Final = 15
RECONNECT_WAIT_S: Final = 0.25

_JWT_MARK: Final = "BEGIN NATS USER JWT"

OnError = Callable[[Exception], None]


async def connect(
    url: str,
    creds_file: str | Path | None = None,
    inbox_prefix: str = "_INBOX",
    on_error: OnError | None = None,
    timeout_s: float = CONNECT_TIMEOUT_S,
) -> Client:
    """Connect within `timeout_s`; a connection that is lost later is sought again for ever.

    `creds_file` holds either what `nsc` writes (.creds, needs the package `nkeys`) or one line
    `user:password`; a URL may carry credentials too. A user who may only use an inbox of its own
    needs its `inbox_prefix`. The broker's refusals (`permissions violation`) reach `on_error`
    alone, nothing raises; without one they are logged as errors.
    Raises NotConnected when no broker lets us in and ValueError for an unusable file.
    """
    errors = _Errors(on_error or _log_error)
    nc = _HearingClient()
    try:
        async with asyncio.timeout(timeout_s):
            await nc.connect(url, error_cb=errors.heard, **_options(creds_file, inbox_prefix))
    except ModuleNotFoundError as error:
        raise ValueError(
            f"a .creds file needs one more package: pip install {error.name}"
        ) from None
    except (nats_errors.Error, OSError, TimeoutError) as error:
        await disconnect(nc)
        reason = errors.last or error
        raise NotConnected(f"no broker lets us in at {_without_password(url)}: {reason}") from None
    errors.connected = True
    return nc


async def disconnect(nc: Client) -> None:
    """Close the connection, also one that the broker has dropped."""
    # nats-py flushes what it holds into the dead connection, and so raises.
    with suppress(OSError):
        await nc.close()


class _HearingClient(Client):
    """nats-py's client stops reading when the answer to a flush comes after it was given up."""

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


@dataclass(slots=True)
class _Errors:
    report: OnError
    connected: bool = False
    last: Exception | None = None

    async def heard(self, error: Exception) -> None:
        # Until we are in, the last one is the reason of our own error: no need to report each try.
        if self.connected:
            self.report(error)
        self.last = error


def _options(creds_file: str | Path | None, inbox_prefix: str) -> dict[str, Any]:
    return {
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": RECONNECT_WAIT_S,
        "ping_interval": PING_INTERVAL_S,
        "inbox_prefix": inbox_prefix,
        **credentials(creds_file),
    }


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)


def credentials(creds_file: str | Path | None) -> dict[str, Any]:
    """Return the credentials of a file as arguments of `nats.connect`."""
    if creds_file is None:
        return {}
    try:
        text = Path(creds_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"credentials file {creds_file} cannot be read: {error}") from None
    if _JWT_MARK in text:
        return {"user_credentials": str(creds_file)}
    user, colon, password = text.partition(":")
    if not (user and colon and password) or "\n" in text:
        hint = "expected a NATS .creds file or one line user:password"
        raise ValueError(f"credentials file {creds_file}: {hint}")
    return {"user": user, "password": password}


def _log_error(error: Exception) -> None:
    logging.getLogger(__name__).error("broker: %s", error)
