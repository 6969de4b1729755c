"""A graph that asks for leave between two steps, after speaking in the very step that asks."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from tests.support.graphs.control import slow_step
from tests.support.graphs.scripted import Say, ScriptedModel, said_in_turn
from tests.support.graphs.steps import State, speaker

QUESTION = {"question": "May I go on?", "steps_left": ["two"]}
SPOKEN = "I am about to ask for leave. "
SCRIPT = (
    Say("I start step one now. ", ("one",)),
    Say(SPOKEN),
    Say("(the answer, told by the node that asked)"),
    Say("I start step two now. ", ("two",)),
    Say("Both steps are done."),
)
ASKS_AFTER = 1  # messages of the model


def builder() -> StateGraph[Any, Any, Any, Any]:
    """Step one, then words and a question in one node, then step two."""
    graph = StateGraph(State)
    graph.add_node("speak", speaker(SCRIPT))
    graph.add_node("tools", ToolNode([slow_step]))
    graph.add_node("ask", _asker())
    graph.add_edge(START, "speak")
    graph.add_conditional_edges("speak", tools_condition)
    graph.add_conditional_edges("tools", _after_tools, ["ask", "speak"])
    graph.add_edge("ask", "speak")
    return graph


def _asker() -> Any:
    model = ScriptedModel(script=SCRIPT)

    async def ask(state: State) -> dict[str, list[BaseMessage]]:
        words = await model.ainvoke(state["messages"])
        answer = interrupt(QUESTION)
        return {"messages": [words, AIMessage(content=f"The answer is {answer}. ")]}

    return ask


def _after_tools(state: State) -> str:
    return "ask" if said_in_turn(state["messages"]) == ASKS_AFTER else "speak"
