"""`make settings`: writes the tables of settings into docs/operations.md from the classes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from vystak_turns.config import Settings, variable_of
from vystak_turns_agent.settings import PREFIX, SESSIONS_PATH_VARIABLE, AgentSettings

UNITS = {"_s": "s", "_bytes": "bytes"}
END = "<!-- end -->"


def of_turn_control() -> list[str]:
    """Return the variables of `vystak-turns serve`."""
    return [variable_of(name) for name in Settings.model_fields]


def of_the_agent() -> list[str]:
    """Return the variables of `vystak-turns-agent serve`."""
    own = {"sessions_path": SESSIONS_PATH_VARIABLE}
    return [own.get(name, PREFIX + name.upper()) for name in AgentSettings.model_fields]


def with_tables(page: str) -> str:
    """Return the page with both tables as the classes have them now."""
    page = _filled(page, "settings of turn control", _table(Settings, of_turn_control()))
    return _filled(page, "settings of the agent", _table(AgentSettings, of_the_agent()))


def _filled(page: str, name: str, table: str) -> str:
    begin = f"<!-- {name} -->"
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(END)}", re.DOTALL)
    filled, count = found.subn(lambda _: f"{begin}\n{table}\n{END}", page)
    if count != 1:
        message = f"the page must have one place between {begin!r} and {END!r}"
        raise ValueError(message)
    return filled


def _table(model: type[BaseModel], variables: list[str]) -> str:
    return "\n".join(_lines(model, variables))


def _lines(model: type[BaseModel], variables: list[str]) -> Iterator[str]:
    yield "| Variable | Default | Meaning |"
    yield "|---|---|---|"
    for variable, (name, field) in zip(variables, model.model_fields.items(), strict=True):
        default = field.get_default(call_default_factory=True, validated_data={})
        meaning = (field.description or "").replace("|", "\\|").removesuffix(".")
        yield f"| `{variable}` | {_default(name, default)} | {meaning} |"


def _default(name: str, value: object) -> str:
    if value is None or value == {}:
        return "unset"
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{shown}` {unit}".rstrip()


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(with_tables(file.read_text(encoding="utf-8")), encoding="utf-8")
