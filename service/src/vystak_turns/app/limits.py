"""Every limit of the application, by name (R15)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits and times of the drivers.

    Attributes:
        max_attempts: re-drives from the same step before a turn is failed.
        seq_block: seqs reserved in one commit.
        max_running_turns: turns driven side by side; the others wait in order.
        stop_grace_s: how long an orderly stop waits for steps in flight.
        stream_max_age_s: how long the log keeps a message.
        cap_wait_s: how long a turn at the cap waits for its agent to tell of progress.
        retry_first_s, retry_max_s: the first and the longest pause between two tries.
        health_poll_max_s: the longest pause between two health checks of an agent that is away.
        keepalive_s: after so much silence a driven turn's log gets a keep-alive event; 0: never.

    """

    max_attempts: int = 3
    seq_block: int = 1000
    max_running_turns: int = 1000
    stop_grace_s: float = 20.0
    stream_max_age_s: float = 3600.0
    cap_wait_s: float = 60.0
    retry_first_s: float = 0.05
    retry_max_s: float = 2.0
    health_poll_max_s: float = 0.3
    keepalive_s: float = 0.0
