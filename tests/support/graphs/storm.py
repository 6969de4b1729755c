"""Graphs for hundreds of turns at once: every word and every step carries the turn's own tag.

A turn's input ends with `#TAG`. Each run of a step leaves two lines in the file `steps` of the
folder STEPS_DIR, `TIME PID started LABEL` and `TIME PID completed LABEL`, so that it can be told
in which life of the agent it ran. How long a step takes depends on its label alone.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send, interrupt

from tests.support.graphs.scripted import Say, ScriptedModel, said_in_turn, tag_of

Graph = StateGraph[Any, Any, Any, Any]

SHORTEST_S = 0.05
LONGEST_S = 4.0
FAILS = "fail"
"""A turn whose input has this word ends with the graph's own error after step one."""
ERROR = "no such shelf"

ONE_BY_ONE = (
    Say("I, {tag}, start step one now. ", ("one",)),
    Say("I, {tag}, start step two now. ", ("two",)),
    Say("I, {tag}, start step three now. ", ("three",)),
    Say("All steps of {tag} are done."),
)
SIDE_BY_SIDE = (
    Say("I, {tag}, start three steps at once. ", ("one", "two", "three")),
    Say("I, {tag}, start two more. ", ("four", "five")),
    Say("All steps of {tag} are done."),
)
ASKING = (
    Say("I, {tag}, start step one now. ", ("one",)),
    Say("I, {tag}, am about to ask twice. "),
    Say("(the two answers, told by the node that asked)"),
    Say("I, {tag}, start two steps and ask twice more. ", ("two", "three")),
    Say("(the answer to the left question)"),
    Say("(the answer to the right question)"),
    Say("All steps of {tag} are done."),
)
ASKS_AFTER = 1  # messages of the model
FORKS_AFTER = 4


class State(TypedDict):
    messages: Annotated[list[BaseMessage], add_messages]


@tool("slow_step")
async def step(label: str) -> str:
    """Carry out one step."""
    note("started", label)
    await asyncio.sleep(length_s(label))
    note("completed", label)
    return f"step {label} is done"


@tool("slow_step")
def step_in_a_thread(label: str) -> str:
    """Carry out one step, in a thread that nobody can cancel."""
    note("started", label)
    time.sleep(length_s(label))
    note("completed", label)
    return f"step {label} is done"


def one_by_one() -> Graph:
    """Three steps, one a message."""
    return _loop(step)


def in_threads() -> Graph:
    """The same with sync tools, which run in threads."""
    return _loop(step_in_a_thread)


def side_by_side() -> Graph:
    """Three branches in one graph step, each a task of its own, then two calls in one task."""
    graph: Graph = StateGraph(State)
    graph.add_node("speak", _speaker(SIDE_BY_SIDE))
    graph.add_node("branch", cast("Any", _branch))
    graph.add_node("tools", ToolNode([step]))
    graph.add_edge(START, "speak")
    graph.add_conditional_edges("speak", _fan_out, ["branch", "tools", END])
    graph.add_edge("branch", "speak")
    graph.add_edge("tools", "speak")
    return graph


def asking() -> Graph:
    """Speaks and asks twice in one node; later two steps and two questions side by side."""
    graph: Graph = StateGraph(State)
    graph.add_node("speak", _speaker(ASKING))
    graph.add_node("branch", cast("Any", _branch))
    graph.add_node("ask", _asker())
    graph.add_node("ask_one", cast("Any", _ask_one))
    graph.add_edge(START, "speak")
    graph.add_conditional_edges("speak", _calls_and_questions, ["branch", "ask_one", END])
    graph.add_conditional_edges("branch", _after_branches, ["ask", "speak"])
    graph.add_edge("ask", "speak")
    graph.add_edge("ask_one", "speak")
    return graph


def length_s(label: str) -> float:
    """Return how long a step takes: always the same for the same label."""
    share = zlib.crc32(label.encode()) / 2**32
    return SHORTEST_S + (LONGEST_S - SHORTEST_S) * share * share


def note(what: str, label: str) -> None:
    """Append a line; it outlives the process, though not the machine."""
    line = f"{time.time():.6f} {os.getpid()} {what} {label}\n"
    path = Path(os.environ["STEPS_DIR"]) / "steps"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _loop(work: BaseTool) -> Graph:
    graph: Graph = StateGraph(State)
    graph.add_node("speak", _speaker(ONE_BY_ONE))
    graph.add_node("tools", ToolNode([work]))
    graph.add_edge(START, "speak")
    graph.add_conditional_edges("speak", tools_condition)
    graph.add_edge("tools", "speak")
    return graph


def _speaker(script: tuple[Say, ...]) -> Any:
    model = ScriptedModel(script=script)

    async def speak(state: State) -> dict[str, list[BaseMessage]]:
        messages = state["messages"]
        asked = next(str(m.content) for m in reversed(messages) if m.type == "human")
        if FAILS in asked.split() and said_in_turn(messages) == 1:
            raise LookupError(ERROR)
        return {"messages": [await model.ainvoke(messages)]}

    return speak


async def _branch(call: Any) -> dict[str, list[ToolMessage]]:
    return {"messages": [await step.ainvoke(call)]}


def _asker() -> Any:
    model = ScriptedModel(script=ASKING)

    async def ask(state: State) -> dict[str, list[BaseMessage]]:
        messages = state["messages"]
        words = await model.ainvoke(messages)
        first = interrupt({"question": "first", "tag": tag_of(messages)})
        second = interrupt({"question": "second", "tag": tag_of(messages)})
        return {"messages": [words, AIMessage(content=f"I was told {first} and {second}. ")]}

    return ask


async def _ask_one(question: dict[str, str]) -> dict[str, list[BaseMessage]]:
    answer = interrupt(question)
    return {"messages": [AIMessage(content=f"On the {question['question']}: {answer}. ")]}


def _calls(state: State) -> list[Any]:
    last = state["messages"][-1]
    return last.tool_calls if isinstance(last, AIMessage) else []


def _fan_out(state: State) -> list[Send] | str:
    calls = _calls(state)
    if said_in_turn(state["messages"]) > 1:
        return "tools" if calls else END
    return [Send("branch", call) for call in calls]


def _calls_and_questions(state: State) -> list[Send] | str:
    messages = state["messages"]
    sends = [Send("branch", call) for call in _calls(state)]
    if said_in_turn(messages) == FORKS_AFTER:
        tag = tag_of(messages)
        sends += [Send("ask_one", {"question": side, "tag": tag}) for side in ("left", "right")]
    return sends or END


def _after_branches(state: State) -> str:
    return "ask" if said_in_turn(state["messages"]) == ASKS_AFTER else "speak"
