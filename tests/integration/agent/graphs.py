"""Small graphs whose steps wait for gates, so that tests stop them exactly where they mean to."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


class Speaker(BaseChatModel):
    """Says one text, token by token."""

    text: str
    calls: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "speaker"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.text))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        yield from self._chunks()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks():
            if run_manager:
                await run_manager.on_llm_new_token(str(chunk.message.content), chunk=chunk)
            yield chunk

    def _chunks(self) -> Iterator[ChatGenerationChunk]:
        for word in self.text.split(" "):
            last = word == self.text.split(" ")[-1]
            text = word if last else word + " "
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))
        for number, name in enumerate(self.calls):
            call = {"name": name, "args": "{}", "id": f"call-{name}", "index": number}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


class Gates:
    """What steps wait for, what they have reached, and how often each began."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self._open: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def step(self, name: str) -> None:
        """Count, say that we are here, and wait for the gate."""
        self.begun[name] += 1
        self._reached[name].set()
        await self._open[name].wait()

    def open(self, *names: str) -> None:
        """Let these steps pass, now and later."""
        for name in names:
            self._open[name].set()

    async def reached(self, name: str) -> None:
        """Wait until the step has begun."""
        async with asyncio.timeout(10):
            await self._reached[name].wait()


def plain_tools(gates: Gates) -> StateGraph:
    """Text and a call, the tool, text: three steps."""

    async def think(state: MessagesState) -> dict[str, Any]:
        if isinstance(state["messages"][-1], ToolMessage):
            await gates.step("answer")
            return {"messages": [await Speaker(text="all is done").ainvoke(state["messages"])]}
        await gates.step("ask")
        speaker = Speaker(text="let me look", calls=("look",))
        return {"messages": [await speaker.ainvoke(state["messages"])]}

    async def look(state: MessagesState) -> dict[str, Any]:
        await gates.step("look")
        return {"messages": [ToolMessage("found it", tool_call_id="call-look")]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("look", look)
    graph.add_edge(START, "think")
    graph.add_conditional_edges(
        "think",
        lambda state: "look" if getattr(state["messages"][-1], "tool_calls", None) else END,
        ["look", END],
    )
    graph.add_edge("look", "think")
    return graph


def asking(gates: Gates) -> StateGraph:
    """Speaks, asks in the same node, then speaks again."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        message = await Speaker(text="may I do it").ainvoke(state["messages"])
        gates.begun["ask"] += 1
        answer = interrupt({"question": "may I"})
        return {"messages": [message, AIMessage(f"you said {answer}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph


def one_node(name: str, node: Any, *more: Any) -> StateGraph:
    """A line of nodes."""
    graph = StateGraph(MessagesState)
    previous = START
    for each_name, each in [(name, node), *((other.__name__, other) for other in more)]:
        graph.add_node(each_name, each)
        graph.add_edge(previous, each_name)
        previous = each_name
    return graph


def side_by_side(*nodes: Any) -> StateGraph:
    """Nodes of one step, then an answer."""
    graph = StateGraph(MessagesState)
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    graph.add_node("answer", lambda state: {"messages": [AIMessage("after all")]})
    graph.add_edge([node.__name__ for node in nodes], "answer")
    return graph
