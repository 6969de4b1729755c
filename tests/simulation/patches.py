"""A defect is put into the application by replacing names, as a careless change would."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest.mock import patch

Patch: TypeAlias = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A defect: its name, what it replaces, and in which runs it is looked for.

    `kinds` are blows (see `test_mutations`); the runs of a flow begin with the one without any.
    """

    name: str
    flows: tuple[str, ...]
    patches: Callable[[], list[Patch]]
    kinds: tuple[str, ...] = ("kill",)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Have the defect in the application; nothing of it outlives the block."""
        with contextlib.ExitStack() as stack:
            for target, name, value in self.patches():
                stack.enter_context(patch.object(target, name, value))
            yield
