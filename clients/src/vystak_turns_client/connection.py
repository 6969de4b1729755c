"""Connecting to the broker with the settings that a long-lived client needs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.errors import Error, NoServersError

from vystak_turns_client.errors import NotConnected

CONNECT_TIMEOUT_S: Final = 5
PING_INTERVAL_S: Final = 15
RECONNECT_WAIT_S: Final = 0.25

_JWT_MARK: Final = "BEGIN NATS USER JWT"

OnError = Callable[[Exception], None]


async def connect(
    url: str,
    creds_file: str | Path | None = None,
    inbox_prefix: str = "_INBOX",
    on_error: OnError | None = None,
) -> Client:
    """Connect, and never give up reconnecting.

    `creds_file` holds either what `nsc` writes (.creds, needs the package `nkeys`) or one line
    `user:password`; a URL may carry credentials too. A user who may only use an inbox of its own
    needs its `inbox_prefix`. The broker's refusals (`permissions violation`) reach `on_error`
    alone, nothing raises; without one they are logged as errors.
    Raises NotConnected when no broker answers and ValueError for an unusable file.
    """
    report = on_error or _log_error

    async def error_cb(error: Exception) -> None:
        report(error)

    try:
        return await nats.connect(
            url,
            error_cb=error_cb,
            # The first connection fails at once; only a lost one is sought for ever.
            connect_timeout=CONNECT_TIMEOUT_S,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,
            ping_interval=PING_INTERVAL_S,
            inbox_prefix=inbox_prefix,
            **credentials(creds_file),
        )
    except (NoServersError, OSError, TimeoutError, Error) as error:
        raise NotConnected(f"no broker answers: {error}") from error


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
