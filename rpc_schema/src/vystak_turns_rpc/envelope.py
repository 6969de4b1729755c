"""JSON-RPC 2.0: requests, success replies, error replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from vystak_turns_rpc import jsontext
from vystak_turns_rpc.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vystak_turns_rpc.vocabulary import Json

JsonId: TypeAlias = str | int | float | None

_VERSION: Final = "2.0"


@dataclass(frozen=True, slots=True)
class Request:
    """A well-formed request; whether the method exists and its params are right is not known.

    A notification (no `id` at all) is carried out but never answered. `metadata` is the extra
    top-level object that the NATS transport adds; anything else there is taken as absent.
    """

    method: str
    params: dict[str, Any]
    id: JsonId
    is_notification: bool
    metadata: dict[str, Any] | None


class BadRequest(RpcError):  # noqa: N818 - the name that the protocol's own error has
    """The bytes are no request. `id` is the caller's where it could be read, else None."""

    def __init__(self, code: ErrorCode, message: str, id: JsonId = None) -> None:  # noqa: A002
        """Remember whom to answer."""
        super().__init__(code, message)
        self.id = id


class ProtocolError(Exception):
    """A reply that is neither a result nor an error of the request it should answer."""


def parse_request(payload: bytes) -> Request:
    """Read a request. Raises nothing but `BadRequest`, whatever the bytes are (R14)."""
    try:
        body = jsontext.load_strict(payload)
    except ValueError as error:
        raise BadRequest(ErrorCode.PARSE_ERROR, f"send one JSON object: {error}") from None
    if not isinstance(body, dict):
        hint = "batches are not supported, send one request object"
        raise BadRequest(ErrorCode.INVALID_REQUEST, hint)
    return _checked(body)


def request(method: str, params: Mapping[str, Json], id: JsonId) -> bytes:  # noqa: A002
    """Write a request that wants an answer."""
    return jsontext.dump({"jsonrpc": _VERSION, "id": id, "method": method, "params": dict(params)})


def success(id: JsonId, result: Mapping[str, Json]) -> bytes:  # noqa: A002
    """Write the reply of a request that was carried out."""
    return jsontext.dump({"jsonrpc": _VERSION, "id": id, "result": dict(result)})


def failure(
    id: JsonId,  # noqa: A002
    code: ErrorCode | int,
    message: str,
    data: Json | None = None,
) -> bytes:
    """Write an error reply; `data` is left out when there is none."""
    error: dict[str, Json] = {"code": int(code), "message": message}
    if data is not None:
        error["data"] = data
    return jsontext.dump({"jsonrpc": _VERSION, "id": id, "error": error})


def parse_reply(payload: bytes, id: JsonId) -> dict[str, Any]:  # noqa: A002
    """Return the result of the request `id`.

    Raises RpcError for an error reply (also one with id null: the service could not read ours) and
    ProtocolError for anything that is no reply to this request.
    """
    try:
        body = jsontext.load_lenient(payload)
    except ValueError as error:
        message = f"the reply is not JSON: {error}"
        raise ProtocolError(message) from None
    if not isinstance(body, dict):
        message = "the reply is not a JSON object"
        raise ProtocolError(message)
    if body.get("error") is not None:
        raise _error_of(body["error"], body.get("id"), id)
    result = body.get("result")
    if body.get("id") != id or not isinstance(result, dict):
        message = f"the reply is not a result of request {id!r}"
        raise ProtocolError(message)
    return result


def _checked(body: dict[str, Any]) -> Request:
    caller_id = body.get("id")
    if not _is_id(caller_id):
        raise BadRequest(ErrorCode.INVALID_REQUEST, "id must be a string, a number or null")
    if body.get("jsonrpc") != _VERSION:
        raise BadRequest(ErrorCode.INVALID_REQUEST, 'jsonrpc must be "2.0"', caller_id)
    method = body.get("method")
    if not isinstance(method, str) or not method:
        hint = "method must be a non-empty string"
        raise BadRequest(ErrorCode.INVALID_REQUEST, hint, caller_id)
    metadata = body.get("metadata")
    return Request(
        method=method,
        params=_params_of(body, caller_id),
        id=caller_id,
        is_notification="id" not in body,
        metadata=metadata if isinstance(metadata, dict) else None,
    )


def _params_of(body: dict[str, Any], caller_id: JsonId) -> dict[str, Any]:
    params = body.get("params", {})
    if isinstance(params, dict):
        return params
    # Positional params are legal JSON-RPC, so a list is a well-formed request with wrong params.
    is_list = isinstance(params, list)
    code = ErrorCode.INVALID_PARAMS if is_list else ErrorCode.INVALID_REQUEST
    raise BadRequest(code, "params must be an object", caller_id)


def _is_id(value: Json) -> bool:
    return value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))


def _error_of(error: Json, reply_id: Json, id: JsonId) -> RpcError | ProtocolError:  # noqa: A002
    if not isinstance(error, dict) or (reply_id is not None and reply_id != id):
        return ProtocolError(f"the reply is not an error of request {id!r}")
    code, message = error.get("code"), error.get("message")
    if not isinstance(code, int) or not isinstance(message, str):
        return ProtocolError("the error reply has no code and message")
    return RpcError(code, message, error.get("data"))
