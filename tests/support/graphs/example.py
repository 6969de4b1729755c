"""The repository's example agent, with steps that a test can hold."""

from __future__ import annotations

from typing import Any

from langgraph.graph import StateGraph

import agent as example
from tests.support.graphs.control import slow_step


def builder() -> StateGraph[Any, Any, Any, Any]:
    """The example's own graph and script; `CONTROL_DIR` steers its steps."""
    return example.with_tools(slow_step, example.delete_files, example.repeat)
