"""From what a user hands over to the compiled graph that we serve."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from vystak_turns_agent.render import MESSAGES_KEY

Graph: TypeAlias = CompiledStateGraph[Any, Any, Any, Any]
GraphBuilder: TypeAlias = StateGraph[Any, Any, Any, Any] | Graph | Callable[..., Any]


class GraphRefusedError(ValueError):
    """The graph cannot be served durably; the text says what to change."""


def build_graph(source: GraphBuilder) -> Graph:
    """Compile a graph, once. Its checkpointer is put in later, by `with_checkpointer`.

    `source` is a StateGraph, a callable without arguments that returns one, or a callable with
    the argument `checkpointer` that returns a compiled graph. A compiled graph is taken as well.
    Raises GraphRefusedError for anything else, and for static breakpoints: a run that stops at
    one cannot be told from one that was killed there. Use `interrupt()` instead.
    """
    graph = source if isinstance(source, StateGraph | CompiledStateGraph) else _call(source)
    if isinstance(graph, StateGraph):
        graph = graph.compile()
    if not isinstance(graph, CompiledStateGraph):
        raise GraphRefusedError(
            f"the graph builder gave a {type(graph).__name__}; give a StateGraph, or a compiled one"
        )
    if MESSAGES_KEY not in graph.channels:
        raise GraphRefusedError(f"the graph's state has no {MESSAGES_KEY!r}; add it to the schema")
    _refuse_breakpoints(graph)
    return graph


def with_checkpointer(graph: Graph, saver: BaseCheckpointSaver[Any]) -> Graph:
    """Return the same graph on a real checkpointer, leaving the user's object alone."""
    return graph.copy({"checkpointer": saver})


def load_builder(target: str) -> GraphBuilder:
    """Import `module:attribute`; raises GraphRefusedError with what is missing."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise GraphRefusedError(f"{target!r} is not of the form module:attribute")
    try:
        found: GraphBuilder = getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise GraphRefusedError(f"cannot import {module_name}: {error}") from error
    except AttributeError as error:
        raise GraphRefusedError(f"{module_name} has no {attribute}") from error
    return found


def _call(source: Any) -> Any:
    if not callable(source):
        raise GraphRefusedError(
            f"a {type(source).__name__} is no graph; give a StateGraph or a callable returning one"
        )
    if "checkpointer" in inspect.signature(source).parameters:
        return source(checkpointer=InMemorySaver())  # a stand-in until the real file is ours
    return source()


def _refuse_breakpoints(graph: Graph) -> None:
    nested = [inner for _, inner in graph.get_subgraphs(recurse=True)]
    for each in [graph, *nested]:
        before = getattr(each, "interrupt_before_nodes", ())
        after = getattr(each, "interrupt_after_nodes", ())
        if before or after:
            raise GraphRefusedError(
                "the graph has static breakpoints (interrupt_before or interrupt_after): "
                "a stop there looks like a crash; call interrupt() in the node instead"
            )
