"""The settings of the streams that keep turn logs; whoever comes first creates one with them.

They are the same for panels and for turn control, so that no two writers ever overwrite each
other's settings in turn. A stream that differs is foreign: it is reported, never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vystak_turns_rpc.subjects import stream_name

DEFAULT_MAX_AGE_S: Final = 3600

_NS_PER_S: Final = 1_000_000_000
_UNLIMITED: Final = (None, 0, -1)
_LIMITS: Final = ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size")
# Each of these makes a stream hold something else than what was published on its subjects.
_ALTERATIONS: Final = ("mirror", "sources", "subject_transform", "sealed", "no_ack")


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What we ask of a stream; everything else is the server's default."""

    name: str
    subject_filter: str
    max_age_s: int
    storage: str = "file"
    retention: str = "limits"


def stream_settings(base: str, max_age_s: int = DEFAULT_MAX_AGE_S) -> StreamSettings:
    """Return the settings of the stream that keeps the turn logs of a base."""
    return StreamSettings(stream_name(base), f"{base}.streams.>", max_age_s)


def differences(settings: StreamSettings, actual: Mapping[str, Any]) -> list[str]:
    """Say what makes an existing stream foreign; an empty list means that it is ours.

    `actual` is the `config` object as the broker answers it: times in nanoseconds, enum words.
    """
    wanted: dict[str, Any] = {
        "name": settings.name,
        "subjects": [settings.subject_filter],
        "storage": settings.storage,
        "retention": settings.retention,
        "max_age": settings.max_age_s * _NS_PER_S,
    }
    found = [
        f"{field} is {actual.get(field)!r}, expected {value!r}"
        for field, value in wanted.items()
        if actual.get(field) != value
    ]
    found += [
        f"{limit} is {actual[limit]!r}, expected no limit"
        for limit in _LIMITS
        if actual.get(limit) not in _UNLIMITED
    ]
    return found + [f"{field} is set" for field in _ALTERATIONS if actual.get(field)]
