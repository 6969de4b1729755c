"""Which volume an agent's container gets at /data, from what the agent declares.

`/data` holds the checkpointer and the journal, so there is always exactly one volume there, in the
agent's container and in turn control's alike:

- a declared dependency (`sessions`, `memory`, one of `services`) whose engine is sqlite claims it:
  its files would lie there too. Of several the first one's volume is taken, and all share it: a
  container with two mounts at one path is not started;
- an engine with a server of its own, such as postgres, claims nothing;
- with no claim, the agent gets `vystak-agent-<name>-data`.

Names are compared as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

MOUNT_POINT: Final = "/data"
SQLITE: Final = "sqlite"

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")

Declared: TypeAlias = Mapping[str, Any]
"""What a YAML file says about an agent or a dependency."""


class DeclarationError(ValueError):
    """The declaration cannot be understood; the words name the place and the cure."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """A store that an agent declares: where in its declaration, its name, engine and volume."""

    place: str
    name: str
    engine: str
    volume: str

    @property
    def claims_data(self) -> bool:
        """Whether its files lie at /data in the agent's container."""
        return self.engine.lower() == SQLITE


def default_volume(agent: str) -> str:
    """Return the volume of an agent without a claim at /data."""
    return f"vystak-agent-{agent}-data"


def data_volume(agent: str, dependencies: Iterable[Dependency]) -> str:
    """Return the one volume at /data."""
    claims = (dependency.volume for dependency in dependencies if dependency.claims_data)
    return next(claims, default_volume(agent))


def fragment(volume: str, services: Iterable[str]) -> dict[str, Any]:
    """Return a Compose file that mounts the volume at /data in these services.

    The volume is Compose's to create; laid over another file with a mount at /data, this one
    replaces it, because Compose merges mounts by their path.
    """

    def mount() -> dict[str, str]:
        return {"type": "volume", "source": volume, "target": MOUNT_POINT}

    return {
        "services": {service: {"volumes": [mount()]} for service in services},
        "volumes": {volume: {"name": volume}},
    }


def pick_agent(document: Any, wanted: str | None) -> Declared:
    """Return the agent of a file: the only one, or that of this name.

    Raises:
        DeclarationError: the file declares no agent, several, or none of this name.

    """
    if not isinstance(document, Mapping):
        raise DeclarationError("the file holds no mapping: expected an agent, or `agents:`")
    agents = document.get("agents", [document])
    if not isinstance(agents, list) or not all(isinstance(agent, Mapping) for agent in agents):
        raise DeclarationError("agents: expected a list of agents")
    named = {_name(agent.get("name"), f"agents[{i}].name"): agent for i, agent in enumerate(agents)}
    if len(named) != len(agents):
        raise DeclarationError("agents: two of them have the same name")
    if wanted is not None and wanted not in named:
        raise DeclarationError(f"no agent {wanted!r}; there are: {', '.join(named) or 'none'}")
    if wanted is None and len(named) != 1:
        raise DeclarationError(f"name one with --agent; there are: {', '.join(named) or 'none'}")
    return named[wanted] if wanted is not None else next(iter(named.values()))


def dependencies_of(agent: Declared) -> list[Dependency]:
    """Return what an agent declares, `sessions` first, then `memory`, then `services`.

    Raises:
        DeclarationError: something declared has no engine or no name.

    """
    found = []
    for place, declared in _places(agent):
        if not isinstance(declared, Mapping):
            raise DeclarationError(f"{place}: expected a mapping with an `engine`")
        found.append(_dependency(place, declared))
    return found


def _places(agent: Declared) -> Iterator[tuple[str, Any]]:
    for place in ("sessions", "memory"):
        if agent.get(place) is not None:
            yield place, agent[place]
    services = agent.get("services") or []
    if not isinstance(services, list):
        raise DeclarationError("services: expected a list")
    for number, service in enumerate(services):
        yield f"services[{number}]", service


def _dependency(place: str, declared: Declared) -> Dependency:
    # `type` is the older word for the same thing.
    engine = declared.get("engine", declared.get("type"))
    if not isinstance(engine, str) or not engine:
        raise DeclarationError(f"{place}.engine: name one, such as sqlite or postgres")
    # Only `sessions` and `memory` have a name without being given one.
    default = None if place.startswith("services") else place
    name = _name(declared.get("name", default), f"{place}.name")
    volume = _name(declared.get("volume", f"vystak-data-{name}"), f"{place}.volume")
    return Dependency(place, name, engine, volume)


def _name(value: Any, place: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise DeclarationError(
            f"{place}: {value!r} is no name; letters, digits, `_`, `.`, `-`, and not one of the "
            "last three first"
        )
    return value
