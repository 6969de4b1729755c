"""What can go wrong between a caller and turn control, besides an error reply (`RpcError`)."""

from __future__ import annotations


class ServiceUnavailable(Exception):  # noqa: N818 - the state it names, not a mistake of ours
    """Nobody answered. The request may have been carried out; repeating it is safe (R5, R6)."""


class NoResponders(ServiceUnavailable):
    """Nobody serves the subject: turn control is down, or the agent's name is wrong."""


class ReplyTimeout(ServiceUnavailable):
    """No reply in time. A denied permission looks the same: see the connection's error log."""


class NotConnected(ServiceUnavailable):
    """There is no connection to the broker."""


class StreamNotFound(Exception):  # noqa: N818 - as above
    """The stream that should keep the turn's log does not exist: create it with `ensure_stream`."""


class Idle(Exception):  # noqa: N818 - as above
    """Nothing came on the subject for `idle_s` seconds: `turn_status` tells what that means."""

    def __init__(self, subject: str, idle_s: float) -> None:
        """Say where, and for how long."""
        super().__init__(f"nothing came on {subject} for {idle_s:g} s")
        self.subject = subject
        self.idle_s = idle_s
