"""The events of a turn as a tagged union, and the messages that carry them on a turn subject.

An event is known by its `type`. Types and fields that we do not know pass through unchanged: an
agent may say more than this version understands, and readers ignore what they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vystak_turns_rpc import jsontext
from vystak_turns_rpc.vocabulary import Json

RESPONSE_CREATED: Final = "response.created"
TEXT_DELTA: Final = "response.output_text.delta"
TEXT_DONE: Final = "response.output_text.done"
ITEM_ADDED: Final = "response.output_item.added"
ARGUMENTS_DELTA: Final = "response.function_call_arguments.delta"
ARGUMENTS_DONE: Final = "response.function_call_arguments.done"
RESPONSE_COMPLETED: Final = "response.completed"
RESPONSE_FAILED: Final = "response.failed"
TURN_REWIND: Final = "vystak.turn.rewind"
APPROVAL_REQUESTED: Final = "vystak.approval.requested"
KEEPALIVE: Final = "vystak.turn.keepalive"
CHECKPOINT: Final = "vystak.checkpoint"
ROLLBACK: Final = "vystak.rollback"
DRAINED: Final = "vystak.drained"

TERMINAL: Final = frozenset({RESPONSE_COMPLETED, RESPONSE_FAILED})
# Between the agent and turn control only: never published, and they take no seq.
IN_BAND: Final = frozenset({CHECKPOINT, ROLLBACK, DRAINED})

FUNCTION_CALL: Final = "function_call"
FUNCTION_CALL_OUTPUT: Final = "function_call_output"

HEADER_MSG_ID: Final = "Nats-Msg-Id"
HEADER_TOKEN: Final = "Vystak-Token"  # noqa: S105 - a fencing number, no secret
HEADER_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"


def is_terminal(event_type: str) -> bool:
    """Tell whether an event of this type ends its turn: nothing follows it (R1)."""
    return event_type in TERMINAL


class _Open(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    def to_dict(self) -> dict[str, Any]:
        """Return the event as it came: the same JSON, unknown fields included."""
        return self.model_dump(exclude_unset=True)


class _Event(_Open):
    type: str


class FunctionCallItem(_Open):
    """A tool call that begins; its arguments follow."""

    type: str = Field(pattern=f"^{FUNCTION_CALL}$")
    call_id: str
    name: str


class FunctionCallOutputItem(_Open):
    """The result of a tool call; `error` is true when the tool raised."""

    type: str = Field(pattern=f"^{FUNCTION_CALL_OUTPUT}$")
    call_id: str
    output: Json = None
    error: bool = False


class ResponseCreated(_Event):
    """The agent took the request; `response.id` is the thread id."""

    response: dict[str, Any]


class TextDelta(_Event):
    """More text of the message `item_id`."""

    item_id: str
    delta: str


class TextDone(_Event):
    """The whole text of the message `item_id`."""

    item_id: str
    text: str


class ItemAdded(_Event):
    """A tool call begins or a tool answered; other kinds of items stay plain dicts."""

    item: Annotated[
        FunctionCallItem | FunctionCallOutputItem | dict[str, Any],
        Field(union_mode="left_to_right"),
    ]


class ArgumentsDelta(_Event):
    """More of the arguments (a JSON text) of a tool call."""

    call_id: str
    delta: str


class ArgumentsDone(_Event):
    """The whole arguments (a JSON text) of a tool call."""

    call_id: str
    arguments: str


class ResponseCompleted(_Event):
    """Terminal: the turn ended well."""

    response: dict[str, Any]


class ResponseFailed(_Event):
    """Terminal: the turn failed; `response.error` has `message` and, from us, `code`."""

    response: dict[str, Any]


class TurnRewind(_Event):
    """Readers keep the events with seq <= `to_seq` (-1: none) and drop the later ones."""

    to_seq: int


class ApprovalRequested(_Event):
    """The turn is parked on a question; `payload` is what the graph asks."""

    payload: Json = None
    park_generation: int | None = None
    interrupt_id: str | None = None


class Checkpoint(_Event):
    """In band: a step was committed after all earlier events and before all later ones."""

    checkpoint_id: str


class Rollback(_Event):
    """In band: text sent ahead was not committed; go back to the last boundary."""


class Drained(_Event):
    """In band: the run let go in order after its step; the turn is not over."""


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event that this version does not understand; `fields` is all of it, as it came."""

    fields: Mapping[str, Any]

    @property
    def type(self) -> str:
        """The event's type, or an empty text where it has none."""
        event_type = self.fields.get("type")
        return event_type if isinstance(event_type, str) else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the event as it came."""
        return dict(self.fields)


_Known: TypeAlias = (
    ResponseCreated
    | TextDelta
    | TextDone
    | ItemAdded
    | ArgumentsDelta
    | ArgumentsDone
    | ResponseCompleted
    | ResponseFailed
    | TurnRewind
    | ApprovalRequested
    | Checkpoint
    | Rollback
    | Drained
)
Event: TypeAlias = _Known | UnknownEvent

_MODELS: Final[dict[str, type[_Known]]] = {
    RESPONSE_CREATED: ResponseCreated,
    TEXT_DELTA: TextDelta,
    TEXT_DONE: TextDone,
    ITEM_ADDED: ItemAdded,
    ARGUMENTS_DELTA: ArgumentsDelta,
    ARGUMENTS_DONE: ArgumentsDone,
    RESPONSE_COMPLETED: ResponseCompleted,
    RESPONSE_FAILED: ResponseFailed,
    TURN_REWIND: TurnRewind,
    APPROVAL_REQUESTED: ApprovalRequested,
    CHECKPOINT: Checkpoint,
    ROLLBACK: Rollback,
    DRAINED: Drained,
}


def parse_event(obj: Mapping[str, Any]) -> Event:
    """Give an event its type. Never raises: what does not fit its type is an `UnknownEvent`."""
    event_type = obj.get("type")
    model = _MODELS.get(event_type) if isinstance(event_type, str) else None
    if model is None:
        return UnknownEvent(obj)
    try:
        return model.model_validate(obj)
    except ValidationError:
        return UnknownEvent(obj)


def rewind(to_seq: int) -> dict[str, Any]:
    """Build the event that takes back everything above `to_seq`."""
    return {"type": TURN_REWIND, "to_seq": to_seq}


def approval_requested(payload: Json, park_generation: int, interrupt_id: str) -> dict[str, Any]:
    """Build the event that asks a parked turn's question."""
    return {
        "type": APPROVAL_REQUESTED,
        "payload": payload,
        "park_generation": park_generation,
        "interrupt_id": interrupt_id,
    }


def keepalive() -> dict[str, Any]:
    """Build the event that says nothing: readers that count silence see that the turn lives."""
    return {"type": KEEPALIVE}


def failed(message: str, code: str, response_id: str | None = None) -> dict[str, Any]:
    """Build turn control's own terminal failure; `code` is a `FailureCode`."""
    response: dict[str, Any] = {} if response_id is None else {"id": response_id}
    response |= {"status": "failed", "error": {"message": message, "code": str(code)}}
    return {"type": RESPONSE_FAILED, "response": response}


@dataclass(frozen=True, slots=True)
class TurnMessage:
    """One message of a turn log: `seq` counts the turn's messages from 0 (R2)."""

    seq: int
    event: dict[str, Any]


def parse_turn_message(payload: bytes) -> TurnMessage:
    """Read the body of a turn message; raises ValueError for anything else."""
    body = jsontext.load_lenient(payload)
    if not isinstance(body, dict):
        message = "a turn message is a JSON object"
        raise ValueError(message)  # noqa: TRY004 - one error for all unreadable bytes
    seq, event = body.get("seq"), body.get("event")
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0:
        message = "seq of a turn message is an integer from 0"
        raise ValueError(message)
    if not isinstance(event, dict):
        message = "event of a turn message is an object"
        raise ValueError(message)  # noqa: TRY004 - one error for all unreadable bytes
    return TurnMessage(seq, event)


def encode_turn_message(seq: int, event_json: bytes) -> bytes:
    """Write the body of a turn message around the event's own JSON, which stays byte for byte."""
    return b'{"seq":%d,"event":%b}' % (seq, event_json)
