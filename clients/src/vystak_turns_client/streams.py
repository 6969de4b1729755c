"""Making sure, as a panel may, that the stream for an agent's turn logs exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError, ServiceUnavailableError

from vystak_turns_client.errors import NotConnected, ReplyTimeout
from vystak_turns_rpc.stream import StreamSettings, differences

_NAME_IN_USE: Final = 10058


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """What was found. A stream with `differences` is foreign: tell somebody, do not change it."""

    created: bool
    differences: tuple[str, ...] = ()


async def ensure_stream(js: JetStreamContext, settings: StreamSettings) -> StreamCheck:
    """Create the stream if there is none; an existing one is compared and never updated.

    Raises ReplyTimeout when the broker does not answer, as it also does without permission.
    """
    try:
        return await _ensure(js, settings)
    except TimeoutError:
        raise ReplyTimeout(
            f"the broker gave no answer about stream {settings.name}: "
            "it is busy, or these credentials may not read or create it"
        ) from None
    except ServiceUnavailableError:
        raise NotConnected(
            "JetStream does not answer: is it switched on (nats-server -js)?"
        ) from None


async def _ensure(js: JetStreamContext, settings: StreamSettings) -> StreamCheck:
    try:
        return await _compared(js, settings)
    except NotFoundError:
        pass
    try:
        await js.add_stream(stream_config(settings))
    except BadRequestError as error:
        if error.err_code != _NAME_IN_USE:
            raise
        # Somebody else was faster, with other settings.
        return await _compared(js, settings)
    return StreamCheck(created=True)


async def _compared(js: JetStreamContext, settings: StreamSettings) -> StreamCheck:
    info = await js.stream_info(settings.name)
    return StreamCheck(
        created=False, differences=tuple(differences(settings, as_wire(info.config)))
    )


def stream_config(settings: StreamSettings) -> StreamConfig:
    """Return the settings in the form that nats-py takes."""
    return StreamConfig(
        name=settings.name,
        subjects=[settings.subject_filter],
        storage=StorageType(settings.storage),
        retention=RetentionPolicy(settings.retention),
        max_age=settings.max_age_s,
    )


def as_wire(config: StreamConfig) -> Mapping[str, Any]:
    """Return a configuration in the broker's own form, as `differences` compares it."""
    return config.as_dict()
