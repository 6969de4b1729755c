"""What callers may send: request bodies from bytes to orders, or words about what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from vystak_turns_agent.orders import Dispatch, PlainResume, Resume
from vystak_turns_rpc import jsontext
from vystak_turns_rpc.vocabulary import is_safe_token, is_thread_id

_EPOCH_MAX: Final = 2**53 - 1  # what JSON carries exactly everywhere
_STAMPS: Final = frozenset({"turn_id", "epoch"})
_STEERING: Final = ("__", "checkpoint", "langgraph", "thread_", "vystak")
_ROLES: Final[Mapping[str, type[BaseMessage]]] = {
    "user": HumanMessage,
    "assistant": AIMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}
Model = TypeVar("Model", bound=BaseModel)


class BadBodyError(ValueError):
    """The body cannot be understood; the text says what to change."""


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @field_validator("thread_id", "previous_response_id", check_fields=False)
    @classmethod
    def _names_a_thread(cls, value: str | None) -> str | None:
        if value is not None and not is_thread_id(value):
            raise ValueError("must be 1 to 256 printable ASCII signs without spaces")
        return value

    @field_validator("turn_id", check_fields=False)
    @classmethod
    def _names_a_turn(cls, value: str | None) -> str | None:
        if value is not None and not is_safe_token(value):
            raise ValueError("must be 1 to 128 of A-Z a-z 0-9 _ -")
        return value


class _TextPart(_Body):
    type: Literal["input_text", "output_text", "text"]
    text: str


class _InputItem(_Body):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[_TextPart]


class _TurnStamp(_Body):
    turn_id: str
    epoch: int = Field(ge=0, le=_EPOCH_MAX)


class ResponsesBody(_Body):
    """The body of `POST /v1/responses`; fields that we do not know go to the graph's config."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    input: str | list[_InputItem]
    previous_response_id: str | None = None
    stream: bool | None = False
    store: Any = None
    model: Any = None
    vystak: _TurnStamp | None = None

    def to_order(
        self,
        new_thread_id: Callable[[], str],
        new_turn_id: Callable[[], str],
        caller_fields_max_bytes: int,
    ) -> Dispatch:
        """Return what to run; ids are made for callers that are not turn control.

        Every checkpoint of the turn carries the caller's fields, hence their limit.
        """
        fields = {key: value for key, value in (self.model_extra or {}).items() if _may_pass(key)}
        if len(jsontext.dump(fields)) > caller_fields_max_bytes:
            raise BadBodyError(f"the fields beside input: over {caller_fields_max_bytes} bytes")
        return Dispatch(
            thread_id=self.previous_response_id or new_thread_id(),
            turn_id=self.vystak.turn_id if self.vystak else new_turn_id(),
            epoch=self.vystak.epoch if self.vystak else None,
            messages=tuple(_messages(self.input)),
            caller_fields=fields,
        )


class _PlainResumeBody(_Body):
    thread_id: str
    resume: Any = None


class _ResumeBody(_Body):
    thread_id: str
    turn_id: str
    epoch: int = Field(ge=0, le=_EPOCH_MAX)
    after_checkpoint_id: str | None = None
    decisions: dict[str, Any] | None = None


class DrainBody(_Body):
    """The body of `POST /v1/_vystak/drain`."""

    thread_id: str
    turn_id: str
    epoch: int = Field(ge=0, le=_EPOCH_MAX)


def parse_body(model: type[Model], payload: bytes) -> Model:
    """Read a body; raises BadBodyError."""
    return _validated(model, _json_object(payload))


def parse_resume(payload: bytes) -> Resume | PlainResume:
    """Read a resume body: ours has a `turn_id`, the original's has not; raises BadBodyError."""
    body = _json_object(payload)
    if not body.get("thread_id"):
        raise BadBodyError("thread_id required")
    if "turn_id" not in body:
        plain = _validated(_PlainResumeBody, body)
        return PlainResume(plain.thread_id, plain.resume)
    ours = _validated(_ResumeBody, body)
    return Resume(
        thread_id=ours.thread_id,
        turn_id=ours.turn_id,
        epoch=ours.epoch,
        catch_up="after_checkpoint_id" in body,
        after_checkpoint_id=ours.after_checkpoint_id,
        decisions=ours.decisions,
    )


def _json_object(payload: bytes) -> dict[str, Any]:
    try:
        body = jsontext.load_strict(payload)
    except ValueError as error:
        raise BadBodyError(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadBodyError("the body is not a JSON object")
    return body


def _validated(model: type[Model], body: dict[str, Any]) -> Model:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the body"
        raise BadBodyError(f"{place}: {first['msg']}") from None


def _messages(given: str | list[_InputItem]) -> list[BaseMessage]:
    if not given:
        raise BadBodyError("input: must not be empty")
    if isinstance(given, str):
        return [HumanMessage(given)]
    return [_ROLES[item.role](_text(item)) for item in given]


def _text(item: _InputItem) -> str:
    if isinstance(item.content, str):
        return item.content
    return "".join(part.text for part in item.content)


def _may_pass(key: str) -> bool:
    """LangGraph steers by some names in its config, and copies others into our stamps."""
    return key not in _STAMPS and not key.startswith(_STEERING)
