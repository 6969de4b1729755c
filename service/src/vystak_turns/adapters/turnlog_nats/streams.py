"""The streams that hold the turn logs: compared, created once, never changed.

A panel creates a stream, too, whoever comes first; an update by one side would overwrite the other
side's settings, in turn and for ever. So a stream that differs is foreign: it is reported and used.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from vystak_turns.adapters.turnlog_nats.api import JetStreamApi, JetStreamError
from vystak_turns_rpc.stream import StreamSettings, differences

_NAME_IN_USE: Final = 10058
_SUBJECTS_OVERLAP: Final = 10065
_NS_PER_S: Final = 1_000_000_000


class StreamState(StrEnum):
    """How a stream stands."""

    READY = "ready"
    CREATED = "created"
    FOREIGN = "foreign"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class StreamReport:
    """A stream's state, and in words what is wrong with it."""

    name: str
    state: StreamState
    words: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether appends have somewhere to go, as far as we know."""
        return self.state is not StreamState.UNAVAILABLE


class Streams:
    """Makes sure of streams; what was found good is not looked at again until it is missed."""

    def __init__(self, api: JetStreamApi, known: Iterable[StreamSettings]) -> None:
        self._api = api
        self._known = {settings.name: settings for settings in known}
        self._found: dict[str, StreamReport] = {}
        self._looks: Counter[str] = Counter()
        self._looking = asyncio.Lock()

    async def ensure_all(self) -> tuple[StreamReport, ...]:
        """Make sure of every known stream."""
        return tuple([await self.ensure_stream(s) for s in self._known.values()])

    async def ensure_stream(self, settings: StreamSettings) -> StreamReport:
        """Create the stream if there is none; compare it if there is one. Never raises."""
        async with self._looking:
            found = self._found.get(settings.name)
            return found or await self._look(settings)

    async def look_again(self, name: str) -> None:
        """Make sure anew of a stream that was missed; an unknown one stays missing.

        Many turns miss a stream at once: one looks, the others wait for what it finds.
        """
        settings = self._known.get(name)
        if settings is None:
            return
        looks = self._looks[name]
        async with self._looking:
            if self._looks[name] == looks:
                await self._look(settings)

    async def _look(self, settings: StreamSettings) -> StreamReport:
        self._found.pop(settings.name, None)
        found = await self._ensure(settings)
        self._looks[settings.name] += 1
        if found.usable:
            self._found[settings.name] = found
        return found

    async def _ensure(self, settings: StreamSettings) -> StreamReport:
        try:
            found = await self._compared(settings)
            return found or await self._created(settings)
        except JetStreamError as error:
            return StreamReport(settings.name, StreamState.UNAVAILABLE, (str(error),))

    async def _compared(self, settings: StreamSettings) -> StreamReport | None:
        try:
            answer = await self._api.ask(f"STREAM.INFO.{settings.name}", {})
        except JetStreamError as error:
            if error.no_stream:
                return None
            raise
        words = tuple(differences(settings, answer.get("config") or {}))
        state = StreamState.FOREIGN if words else StreamState.READY
        return StreamReport(settings.name, state, words)

    async def _created(self, settings: StreamSettings) -> StreamReport:
        try:
            await self._api.ask(f"STREAM.CREATE.{settings.name}", _wire(settings))
        except JetStreamError as error:
            if error.code == _NAME_IN_USE:
                # Somebody else was faster, with other settings.
                found = await self._compared(settings)
                if found is not None:
                    return found
            if error.code == _SUBJECTS_OVERLAP:
                words = f"another stream takes {settings.subject_filter}: {error}"
                return StreamReport(settings.name, StreamState.UNAVAILABLE, (words,))
            raise
        return StreamReport(settings.name, StreamState.CREATED)


def _wire(settings: StreamSettings) -> dict[str, Any]:
    return {
        "name": settings.name,
        "subjects": [settings.subject_filter],
        "storage": settings.storage,
        "retention": settings.retention,
        "max_age": settings.max_age_s * _NS_PER_S,
    }
