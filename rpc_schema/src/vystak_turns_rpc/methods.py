"""The methods of a tasks subject: their names, params and results."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from vystak_turns_rpc.errors import ErrorCode, RpcError
from vystak_turns_rpc.vocabulary import Json, WireStatus, is_safe_token

CREATE_DETACHED: Final = "responses/createDetached"
TURN_STATUS: Final = "responses/turnStatus"
RESUME_DETACHED: Final = "responses/resumeDetached"
CANCEL_DETACHED: Final = "responses/cancelDetached"

# Numbers above it are changed by readers that keep every number as a float.
_MAX_SAFE_INT: Final = 2**53 - 1


def _safe_token(text: str) -> str:
    if not is_safe_token(text):
        message = "must be 1 to 128 letters, digits, '_' or '-'"
        raise ValueError(message)
    return text


SafeToken = Annotated[str, AfterValidator(_safe_token)]
NonEmpty = Annotated[str, Field(min_length=1)]
Generation = Annotated[int, Field(ge=0, le=_MAX_SAFE_INT)]


class Params(BaseModel):
    """What a caller sends: no type is bent to fit, keys that we do not know are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Result(BaseModel):
    """What a service answers; a newer service may send keys that this client does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CreateDetachedParams(Params):
    """Start a turn. `request` is the Responses body, handed to the agent as it is (R5, R11)."""

    request: Annotated[dict[str, Any], Field(min_length=1)]
    turn_id: SafeToken
    stream_subject: NonEmpty


class CreateDetachedResult(Result):
    """The acknowledgement: the turn is journaled and will be carried out (R5)."""

    turn_id: str
    stream_subject: str


class TurnStatusParams(Params):
    """Ask where a turn stands. None (also for an absent or empty id) is an unknown turn."""

    turn_id: Annotated[str | None, AfterValidator(lambda text: text or None)] = None


class TurnError(Result):
    """Why a turn failed: a `FailureCode` (or a word of a later version) and what to read."""

    code: str
    message: str


class TurnStatusResult(Result):
    """Where a turn stands, from the journal alone (R8).

    `interrupt` is the payload of the question that a parked turn waits on; `park_generation` and
    `interrupt_id` name that question. `updated_at` is in seconds since the Unix epoch.
    """

    status: WireStatus
    interrupt: Json = None
    park_generation: int | None = None
    interrupt_id: str | None = None
    attempts: int | None = None
    last_seq: int | None = None
    thread_id: str | None = None
    waiting_for: str | None = None
    updated_at: float | None = None
    error: TurnError | None = None


class ResumeDetachedParams(Params):
    """Decide a parked turn's question. `resume` must be present and may be null (R6).

    With `park_generation` or `interrupt_id` the decision counts for that question only.
    """

    turn_id: NonEmpty
    resume: Json
    park_generation: Generation | None = None
    interrupt_id: str | None = None


class ResumeDetachedResult(Result):
    """The acknowledgement: the decision is stored and will reach its question (R6)."""

    turn_id: str


class CancelDetachedParams(Params):
    """Stop a turn."""

    turn_id: NonEmpty


class CancelDetachedResult(Result):
    """The acknowledgement of a cancel and the status at that moment."""

    turn_id: str
    status: WireStatus


ParamsT = TypeVar("ParamsT", bound=Params)


def parse_params(model: type[ParamsT], params: dict[str, Any]) -> ParamsT:
    """Check params; raises RpcError (-32602) with one line naming the first field that is wrong."""
    try:
        return model.model_validate(params)
    except ValidationError as error:
        raise RpcError(ErrorCode.INVALID_PARAMS, _in_words(error)) from None


def _in_words(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{field} is missing"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{field}: {reason[:1].lower()}{reason[1:]}".replace("\n", " ")
