"""The agent's settings: every limit has a name, a unit and a default (R15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

PREFIX: Final = "VYSTAK_AGENT_"
SESSIONS_PATH_VARIABLE: Final = "VYSTAK_SESSIONS_PATH"


class AgentSettings(BaseModel):
    """What an operator may change. Each field is read from `VYSTAK_AGENT_<FIELD>`.

    The one exception is `sessions_path`, read from `VYSTAK_SESSIONS_PATH`. An empty variable
    counts as unset.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sessions_path: str | None = Field(None, description="File of the checkpointer; see README")
    heartbeat_s: float = Field(10.0, gt=0, description="A comment line this often in a stream")
    grace_s: float = Field(25.0, ge=0, description="After SIGTERM, for the steps in flight")
    lock_retry_s: float = Field(0.2, gt=0, description="Pause between tries for the lock")
    file_retry_s: float = Field(2.0, gt=0, description="Pause after the file could not be used")
    catch_up_stall_s: float = Field(30.0, gt=0, description="A reader that takes nothing is lost")
    reader_max_events: int = Field(20_000, gt=0, description="Events waiting for one reader")
    reader_max_bytes: int = Field(8 * 2**20, gt=0, description="Bytes waiting for one reader")
    body_max_bytes: int = Field(4 * 2**20, gt=0, description="Largest request body")
    caller_fields_max_bytes: int = Field(
        64 * 2**10, gt=0, description="A request's fields for the graph's config, as JSON"
    )
    runs_max: int = Field(1_000, gt=0, description="Runs at the same time")
    worker_threads: int = Field(64, gt=0, description="Threads for sync nodes and tools")
    threads_remembered: int = Field(10_000, gt=0, description="Threads whose stamps are cached")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings; raises pydantic's ValidationError naming the wrong one."""
        names = {name: PREFIX + name.upper() for name in cls.model_fields}
        names["sessions_path"] = SESSIONS_PATH_VARIABLE
        found = {name: environment.get(variable, "") for name, variable in names.items()}
        return cls.model_validate({name: value for name, value in found.items() if value})
