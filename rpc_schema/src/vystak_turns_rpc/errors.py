"""All error codes of the wire, in one place, and the rule by which new ones are allocated.

JSON-RPC 2.0 keeps -32768..-32000 for itself and gives -32000..-32099 to servers. Inside that range:

* -32000 is the only server code that existing panels and transports already send and expect;
* -32001..-32049 stay untouched, because A2A, whose methods share our subject, uses -32001..-32010;
* -32050..-32099 are ours, given out upwards, one code for one thing a caller can act upon.

A code is never given a second meaning, and never taken back.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vystak_turns_rpc.vocabulary import Json


class ErrorCode(IntEnum):
    """`error.code` of a JSON-RPC error reply."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    # A blocking resume did not reach an end.
    RESUME_FAILED = -32000
    # The thread has another turn that is neither ended nor superseded (R13).
    THREAD_BUSY = -32050
    # The service is stopping: send the same request again.
    SHUTTING_DOWN = -32051
    # The journal cannot be written now: nothing was accepted, try again.
    JOURNAL_UNAVAILABLE = -32052


class RpcError(Exception):
    """An error reply: sent by a service that raises it, raised by a client that receives one."""

    def __init__(self, code: ErrorCode | int, message: str, data: Json | None = None) -> None:
        """Keep a known code as an `ErrorCode`, any other as the number it is."""
        super().__init__(code, message, data)
        self.code = _known(code)
        self.message = message
        self.data = data

    def __str__(self) -> str:
        """Return the message with its code."""
        return f"{self.message} (code {int(self.code)})"


def _known(code: int) -> ErrorCode | int:
    try:
        return ErrorCode(code)
    except ValueError:
        return code
