"""The settings of `vystak-turns serve`: every variable, its unit, its default, what 0 means (R15).

Wrong settings never start a service: `load` explains each of them by the variable's name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from vystak_turns.app.limits import Limits
from vystak_turns_rpc.stream import DEFAULT_MAX_AGE_S
from vystak_turns_rpc.subjects import queue_group, tasks_subject, turn_base

PREFIX: Final = "VYSTAK_"

_BROKER_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_PASSWORD: Final = re.compile(r"(?<=://)[^/\s@]*@")


class SettingsError(Exception):
    """Settings with which nothing can be started; the words name the variables and the cure."""


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """One agent: its address and the subjects on which its turns are asked for.

    `turn_base` belongs to `tasks_subject`; requests on `more_subjects` name turns of that base too.
    """

    name: str
    url: str
    tasks_subject: str
    queue_group: str
    turn_base: str
    more_subjects: tuple[str, ...] = ()

    @property
    def subjects(self) -> tuple[str, ...]:
        """Every subject on which requests are taken."""
        return (self.tasks_subject, *self.more_subjects)


class Settings(BaseSettings):
    """What an operator may set: the variable of a field is `VYSTAK_` and its name in capitals.

    An empty variable counts as unset.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    # --- the broker
    nats_url: str = Field(
        "nats://127.0.0.1:4222",
        repr=False,
        description="Address of NATS; several with commas between. May carry user:password@.",
    )
    nats_creds: Path | None = Field(
        None,
        description="File with credentials: what nsc writes (.creds), or one line user:password.",
    )
    nats_inbox_prefix: str = Field(
        "_INBOX_turns",
        pattern=r"^_INBOX[A-Za-z0-9_-]*$",
        description="First token of the subjects on which the broker answers us. The role `turns` "
        "of our broker configuration may use this one only.",
    )
    nats_subject_prefix: str = Field("vystak", description="First tokens of every subject.")
    nats_namespace: str = Field("default", description="Namespace of the agents.")
    nats_subject: str | None = Field(
        None, description="Tasks subject of the one agent, in place of the derived one."
    )
    nats_more_prefixes: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Further prefixes, with commas between, under which requests are taken too. "
        "Turn logs stay under VYSTAK_NATS_SUBJECT_PREFIX: some panels use that one for logs and "
        "`vystak` for requests.",
    )
    stream_max_age_s: int = Field(
        DEFAULT_MAX_AGE_S,
        ge=1,
        description="Seconds that turn logs are kept. Panels make the stream too, with 3600: "
        "another value here makes a stream of theirs foreign. 0 is refused.",
    )

    # --- the agents
    agents: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        repr=False,
        description='JSON object of agent name to address: {"a": "http://127.0.0.1:8000"}.',
    )
    agent_name: str | None = Field(
        None, description="Name of the one agent, without VYSTAK_AGENTS."
    )
    agent_url: str | None = Field(
        None, repr=False, description="Address of the one agent, without VYSTAK_AGENTS."
    )

    # --- the journal and the HTTP port
    turns_path: str | None = Field(
        None,
        description="File of the journal. Unset: /data/turns.db when /data is a folder that can be "
        "written to, else vystak-turns.db in the folder for temporary files.",
    )
    http_host: str = Field("127.0.0.1", description="Address of the HTTP port.")
    http_port: int = Field(
        8130, ge=0, le=65535, description="Number of the HTTP port. 0: any free one, see the log."
    )

    # --- limits of turns
    max_redrive_attempts: int = Field(
        3,
        ge=0,
        description="Re-drives of a turn from the same step before it is failed. "
        "0: a turn whose agent or driver died is failed.",
    )
    max_running_turns: int = Field(
        1000, ge=1, description="Turns driven at the same time; the others wait. 0 is refused."
    )
    stop_grace_s: float = Field(
        20.0,
        ge=0,
        description="Seconds that an orderly stop waits for steps in flight. 0: it does not wait.",
    )
    keepalive_s: float = Field(
        0.0,
        ge=0,
        description="Seconds of silence after which a driven turn's log gets a "
        "`vystak.turn.keepalive` event, so that a reader which takes silence for an end stays. "
        "0: never.",
    )
    cap_wait_s: float = Field(
        60.0,
        ge=1,
        description="Seconds that a turn at the cap waits for its agent to come back and tell of "
        "progress before it is failed. 0 is refused.",
    )
    seq_block: int = Field(
        1000, ge=1, description="Sequence numbers reserved in one commit. 0 is refused."
    )
    retry_first_s: float = Field(
        0.05, gt=0, description="Seconds before the second try of anything. 0 is refused."
    )
    retry_max_s: float = Field(
        2.0, gt=0, description="Longest pause in seconds between two tries. 0 is refused."
    )
    health_poll_max_s: float = Field(
        0.3,
        gt=0,
        description="Longest pause in seconds between two health checks of an agent that is away. "
        "0 is refused.",
    )

    # --- waits for an agent and the broker
    agent_connect_s: float = Field(
        10.0, gt=0, description="Seconds for a connection to an agent. 0 is refused."
    )
    agent_answer_s: float = Field(
        60.0,
        gt=0,
        description="Seconds until an agent begins to answer a dispatch or resume. 0 is refused.",
    )
    agent_call_s: float = Field(
        30.0, gt=0, description="Seconds for any other whole answer of an agent. 0 is refused."
    )
    agent_health_s: float = Field(
        2.0, gt=0, description="Seconds for one health check of an agent. 0 is refused."
    )
    agent_heartbeat_s: float = Field(
        10.0,
        gt=0,
        description="Seconds between the comment lines that an agent sends; three missed ones "
        "mean that the stream is lost. 0 is refused.",
    )
    agent_gap_s: float = Field(
        300.0,
        gt=0,
        description="Seconds of silence after which the stream of an agent without comment lines "
        "is lost. 0 is refused.",
    )
    event_max_bytes: int = Field(
        1024 * 1024, ge=1, description="Largest event of an agent in bytes. 0 is refused."
    )
    broker_answer_s: float = Field(
        5.0, gt=0, description="Seconds for an answer or acknowledgement of NATS. 0 is refused."
    )

    # --- limits of requests
    max_requests_in_hand: int = Field(
        1024, ge=1, description="Requests carried out at the same time. 0 is refused."
    )
    max_requests_waiting: int = Field(
        65536, ge=1, description="Requests an agent's subscription may queue. 0 is refused."
    )
    request_max_bytes: int = Field(
        1024 * 1024,
        ge=1,
        description="Largest HTTP request body in bytes; NATS has its own max_payload. "
        "0 is refused.",
    )

    # --- the log
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="console, json, or auto: console on a terminal, json elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least important kind of line that is written."
    )

    @field_validator("agents", mode="before")
    @classmethod
    def _read_agents(cls, value: Any) -> Any:
        return _json_object(value) if isinstance(value, str) else value

    @field_validator("nats_more_prefixes", mode="before")
    @classmethod
    def _read_prefixes(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @field_validator("nats_url")
    @classmethod
    def _check_broker(cls, value: str) -> str:
        for address in value.split(","):
            _check_url(address.strip(), _BROKER_SCHEMES, "nats://127.0.0.1:4222")
        return value

    @model_validator(mode="after")
    def _check_agents(self) -> Self:
        self.agent_places()
        return self

    def agent_places(self) -> tuple[AgentPlace, ...]:
        """Return the agents, each with its subject; raises ValueError if they cannot be served."""
        places: dict[str, AgentPlace] = {}
        for name, url in self._named_agents().items():
            place = self._place(name, url)
            for subject in place.subjects:
                _claim(places, subject, place)
        return tuple(dict.fromkeys(places.values()))

    def servers(self) -> list[str]:
        """Return the broker's addresses."""
        return [address.strip() for address in self.nats_url.split(",")]

    def limits(self) -> Limits:
        """Return the limits of the application."""
        return Limits(
            max_attempts=self.max_redrive_attempts,
            seq_block=self.seq_block,
            max_running_turns=self.max_running_turns,
            stop_grace_s=self.stop_grace_s,
            stream_max_age_s=self.stream_max_age_s,
            cap_wait_s=self.cap_wait_s,
            retry_first_s=self.retry_first_s,
            retry_max_s=self.retry_max_s,
            health_poll_max_s=self.health_poll_max_s,
            keepalive_s=self.keepalive_s,
        )

    def _named_agents(self) -> dict[str, str]:
        if self.agents and (self.agent_name or self.agent_url):
            raise ValueError(
                "VYSTAK_AGENTS: set either it or VYSTAK_AGENT_NAME and VYSTAK_AGENT_URL, not both"
            )
        if self.agents:
            return self.agents
        if self.agent_name and self.agent_url:
            return {self.agent_name: self.agent_url}
        missing = "VYSTAK_AGENT_URL" if self.agent_name else "VYSTAK_AGENT_NAME"
        if self.agent_name or self.agent_url:
            raise ValueError(f"{missing}: set it too, it belongs to the other one")
        raise ValueError(
            'VYSTAK_AGENTS: no agent is named; set it to {"NAME": "http://HOST:PORT"}, '
            "or set VYSTAK_AGENT_NAME and VYSTAK_AGENT_URL"
        )

    def _place(self, name: str, url: str) -> AgentPlace:
        variable = "VYSTAK_AGENTS" if self.agents else "VYSTAK_AGENT_URL"
        try:
            _check_url(url, ("http", "https"), "http://127.0.0.1:8000")
        except ValueError as error:
            raise ValueError(f"{variable}: the address of {name!r} is wrong: {error}") from None
        subject = self._subject(name)
        more = tuple(other for other in self._more_subjects(name) if other != subject)
        group, base = queue_group(name), turn_base(subject)
        return AgentPlace(name, url.rstrip("/"), subject, group, base, more)

    def _more_subjects(self, name: str) -> tuple[str, ...]:
        try:
            prefixes = dict.fromkeys(self.nats_more_prefixes)
            return tuple(tasks_subject(prefix, self.nats_namespace, name) for prefix in prefixes)
        except ValueError as error:
            raise ValueError(f"VYSTAK_NATS_MORE_PREFIXES: {error}") from None

    def _subject(self, name: str) -> str:
        if self.nats_subject is None:
            try:
                return tasks_subject(self.nats_subject_prefix, self.nats_namespace, name)
            except ValueError as error:
                raise ValueError(f"VYSTAK_AGENTS or VYSTAK_NATS_…: {error}") from None
        if len(self.agents) > 1:
            raise ValueError("VYSTAK_NATS_SUBJECT: it fits one agent only, VYSTAK_AGENTS has more")
        try:
            turn_base(self.nats_subject)
            _check_literal(self.nats_subject)
            queue_group(name)
        except ValueError as error:
            raise ValueError(f"VYSTAK_NATS_SUBJECT: {error}") from None
        return self.nats_subject


def _claim(places: dict[str, AgentPlace], subject: str, place: AgentPlace) -> None:
    other = places.setdefault(subject, place)
    if other is not place:
        raise ValueError(
            f"VYSTAK_AGENTS: {other.name!r} and {place.name!r} would share the subject "
            f"{subject}: rename one of them"
        )


def load() -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingsError: something is missing or wrong; the words are for the operator.

    """
    try:
        return Settings()
    except ValidationError as error:
        items = error.errors(include_url=False, include_input=False)
        raise SettingsError("\n".join(_in_words(item) for item in items)) from None


def variable_of(field: str) -> str:
    """Return the variable that sets a field."""
    return PREFIX + field.upper()


def without_password(text: str) -> str:
    """Return a text with the credentials of every URL in it taken out."""
    return _PASSWORD.sub("***@", text)


def _json_object(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands in it twice")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ValueError(f'not JSON ({error}); expected {{"NAME": "http://HOST:PORT"}}') from None


def _check_url(text: str, schemes: tuple[str, ...], example: str) -> None:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in schemes and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{without_password(text)!r} is no address such as {example}")


def _check_literal(subject: str) -> None:
    if not all(re.fullmatch(r"[^\s*>.]+", token) for token in subject.split(".")):
        raise ValueError(f"{subject!r} has an empty token, a space or a wildcard")


def _in_words(item: Any) -> str:
    words = item["msg"].removeprefix("Value error, ")
    if not item["loc"]:
        return str(words)
    variable = variable_of(str(item["loc"][0]))
    inside = "".join(f"[{part!r}]" for part in item["loc"][1:])
    described = Settings.model_fields[str(item["loc"][0])].description
    return f"{variable}{inside}: {words}\n    {described}"
