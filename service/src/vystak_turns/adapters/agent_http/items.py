"""What the agent's events mean to the application: to be published, in band, or the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn, TypeGuard

from vystak_turns.core.facts import StreamEnd
from vystak_turns.ports import AgentEvent, Ended, Marker, RolledBack, StreamItem
from vystak_turns_rpc.events import (
    APPROVAL_REQUESTED,
    CHECKPOINT,
    DRAINED,
    ROLLBACK,
    TURN_REWIND,
    is_terminal,
)

_DONE: Final = b"[DONE]"

# Turn control's own words (R10): coming from an agent they would move or stop the readers.
_ONLY_OURS: Final = frozenset({TURN_REWIND, APPROVAL_REQUESTED})


def items_of(events: Iterable[bytes]) -> Iterator[StreamItem]:
    """Give the data of events their meaning; what makes no sense is left out."""
    for data in events:
        item = _item(data)
        if item is not None:
            yield item


def is_last(item: StreamItem) -> bool:
    """Tell whether nothing may follow the item."""
    return isinstance(item, Ended) or (isinstance(item, AgentEvent) and is_terminal(item.type))


def _item(data: bytes) -> StreamItem | None:
    event = _object(data)
    event_type = event.get("type")
    if not isinstance(event_type, str):
        return Ended(StreamEnd.CLEAN) if data.strip() == _DONE else None
    if event_type == CHECKPOINT:
        checkpoint_id = event.get("checkpoint_id")
        return Marker(checkpoint_id) if _is_id(checkpoint_id) else None
    if event_type == ROLLBACK:
        return _rolled_back(event.get("checkpoint_id"))
    if event_type == DRAINED:
        return Ended(StreamEnd.DRAINED)
    return None if event_type in _ONLY_OURS else AgentEvent(event_type, data)


def _object(data: bytes) -> dict[str, Any]:
    """Read an event; rubbish is an empty one.

    It is read whole although only its type is needed: half an event, published unread, would make
    the message around it unreadable for everybody. So would NaN, for a browser.
    """
    try:
        event = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _rolled_back(checkpoint_id: Any) -> StreamItem:
    if checkpoint_id is None or _is_id(checkpoint_id):
        return RolledBack(checkpoint_id)
    # Something was taken back, and we cannot know what: ask the agent where it stands.
    return Ended(StreamEnd.LOST)


def _is_id(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value != "" and value.isprintable()
