"""The example panel as tests use it: its stack, its API, and a browser's tab on its page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from playwright.async_api import ConsoleMessage, Locator, Page, expect

from tests.support.distributions import ROOT
from tests.support.live import TASKS_SUBJECT, Control, Live, TurnRef, stack_options
from tests.support.waiting import PATIENCE_S, ticks
from vystak_turns.embedded.example import example_panel
from vystak_turns.embedded.stack import PANEL, PARTS, LocalStack, StackOptions
from vystak_turns_client.client import TurnsClient
from vystak_turns_client.connection import connect
from vystak_turns_rpc.subjects import turn_base, turn_subject

PATIENCE_MS = 1000 * PATIENCE_S
EXAMPLE = ROOT / "examples" / "docker-panel-durable"
USER = "you@localhost"
# What Chromium itself writes when a request fails; a script can neither see nor stop it.
NETWORK_TROUBLE = "Failed to load resource"

TRANSCRIPT = """
() => [...document.querySelectorAll('#transcript > li')].map((message) => ({
  kind: message.classList.contains('user') ? 'user' : 'assistant',
  turn: message.dataset.turn,
  parts: message.classList.contains('user')
    ? [{ text: message.querySelector('.words').textContent }]
    : [...message.querySelector('.parts').children].map((block) => ({
        kind: block.dataset.key.split('|')[0],
        text: block.dataset.key.startsWith('text') ? block.textContent : null,
        name: block.querySelector('.name')?.textContent,
        output: block.querySelector('.output')?.textContent,
        state: block.dataset.state,
      })),
}))
"""


@dataclass(frozen=True, slots=True)
class PanelStack:
    """The stack with a panel; `api` is signed in as a program is."""

    live: Live
    api: httpx.AsyncClient

    @property
    def address(self) -> str:
        """What the panel prints for a person to open."""
        token = self.live.stack.places.panel_token.read_text().strip()
        return f"{self.live.stack.panel_url}/?token={token}"

    async def mend(self) -> None:
        """Start again what a test has ended and forget what it ordered."""
        self.live.control.forget()
        stack = self.live.stack
        await self.live.start(*(part for part in (*PARTS, PANEL) if stack.pid(part) is None))

    def show_logs(self) -> None:
        """Print what the processes wrote, for a test that failed."""
        self.live.show_logs()
        print(f"--- log of panel\n{self.live.stack.log(PANEL)}")  # noqa: T201

    async def conversation(self) -> str:
        """Begin a conversation."""
        answer = await self.api.post("/projects/default/conversations")
        answer.raise_for_status()
        conversation_id: str = answer.json()["id"]
        return conversation_id

    async def messages(self, conversation_id: str) -> dict[str, Any]:
        """Read a conversation as the page does."""
        answer = await self.api.get(f"/conversations/{conversation_id}/messages")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    async def wait_settled(self, conversation_id: str) -> list[dict[str, Any]]:
        """Wait until no turn is active and return the messages that the panel has kept."""
        async for _ in ticks("the persister has concluded the turn"):
            found = await self.messages(conversation_id)
            if found["conversation"]["active_turn_id"] is None:
                messages: list[dict[str, Any]] = found["messages"]
                return messages
        raise AssertionError

    async def thread_parts(self, conversation_id: str, turn_id: str) -> list[Mapping[str, Any]]:
        """Return what the agent's own thread says of a turn, in the shape of a transcript."""
        base = turn_base(TASKS_SUBJECT)
        turn = TurnRef(turn_id, turn_subject(base, conversation_id, turn_id), {})
        return parts_of_thread(await self.live.messages_of(turn))


@asynccontextmanager
async def panel_stack(folder: Path) -> AsyncIterator[PanelStack]:
    """Start the example agent, whose steps do what `Control` says, and the panel."""
    control = Control(folder / "control")
    control.folder.mkdir(parents=True)
    async with LocalStack(folder / "stack", _options(control)) as stack:
        await stack.wait_ready(PATIENCE_S)
        panel = await connect(stack.nats_url, stack.panel_creds)
        broker = await connect(stack.nats_url, stack.turns_creds, "_INBOX_turns")
        token = stack.places.panel_token.read_text().strip()
        api = httpx.AsyncClient(
            base_url=f"{stack.panel_url}/api",
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=PATIENCE_S,
        )
        try:
            client = TurnsClient(panel, TASKS_SUBJECT)
            live = Live(stack, control, client, panel.jetstream(), broker.jetstream())
            async with api:
                yield PanelStack(live, api)
        finally:
            await panel.close()
            await broker.close()


def _options(control: Control) -> StackOptions:
    panel = example_panel(ROOT)
    options = stack_options("example:builder", control)
    python_path = f"{ROOT}:{EXAMPLE}"
    return replace(
        options,
        agent_environment={**options.agent_environment, "PYTHONPATH": python_path},
        panel_command=panel.words,
        panel_environment={**panel.environment, "PANEL_USER": USER, "PANEL_PATIENCE_S": "3"},
    )


@dataclass
class Tab:
    """One tab on the panel's page. `errors`: what the console got that must not be there."""

    page: Page
    errors: list[str] = field(default_factory=list)
    network_troubles: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Collect the console's errors from now on."""
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    async def open(self, address: str, conversation_id: str = "") -> None:
        """Sign in, and show a conversation."""
        await self.page.goto(address)
        if conversation_id:
            await self.page.goto(f"{self.page.url.partition('#')[0]}#{conversation_id}")

    async def say(self, text: str) -> None:
        """Type a message and send it."""
        await self.page.get_by_label("Message to the agent").fill(text)
        await self.page.get_by_role("button", name="Send").click()

    async def conversation_id(self) -> str:
        """Return the id of the conversation that is shown."""
        await self.page.wait_for_function("location.hash.length > 1", timeout=PATIENCE_MS)
        found: str = await self.page.evaluate("location.hash.slice(1)")
        return found

    def tool(self, words: str) -> Locator:
        """Return the tool calls whose call shows the words."""
        call = self.page.locator(".call", has_text=words)
        return self.page.locator(".tool", has=call)

    async def wait_status(self, words: str) -> None:
        """Wait until the turn's status reads so."""
        await expect(self.page.locator("#status")).to_have_text(words, timeout=PATIENCE_MS)

    async def wait_shown(self, locator: Locator) -> None:
        """Wait until something is to be seen."""
        await expect(locator).to_be_visible(timeout=PATIENCE_MS)

    async def transcript(self) -> list[dict[str, Any]]:
        """Return what the page shows, message by message."""
        found: list[dict[str, Any]] = await self.page.evaluate(TRANSCRIPT)
        return found

    async def answer(self) -> dict[str, Any]:
        """Return the agent's last message as it is shown."""
        messages = [each for each in await self.transcript() if each["kind"] == "assistant"]
        return messages[-1]

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type not in {"error", "warning"}:
            return
        into = self.network_troubles if NETWORK_TROUBLE in message.text else self.errors
        into.append(f"{message.text} ({message.location.get('url')})")


async def check_agreement(tab: Tab, panel: PanelStack, conversation_id: str) -> None:
    """The page, the persister's row and the agent's thread say the same of the last turn."""
    messages = await panel.wait_settled(conversation_id)
    answer = await tab.answer()
    turn_id = answer["turn"]
    rows = [m for m in messages if m["role"] == "assistant" and m["turn_id"] == turn_id]
    assert len(rows) == 1, rows

    shown, kept = parts_of_page(answer), parts_of_row(rows[0])
    thread = await panel.thread_parts(conversation_id, turn_id)
    assert shown == thread
    assert kept == thread


def parts_of_page(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a message on the page, without notes and questions."""
    return [
        _text(p["text"]) if p["kind"] == "text" else _tool(p["name"], p["output"])
        for p in answer["parts"]
        if p["kind"] in {"text", "tool"}
    ]


def parts_of_row(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a row that the persister wrote."""
    return [
        _text(p["text"]) if p["type"] == "text" else _tool(p["tool_name"], p["output"])
        for p in row["parts"]
    ]


def parts_of_thread(messages: list[BaseMessage]) -> list[Mapping[str, Any]]:
    """Return the parts that a thread's messages come to."""
    outputs = {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}
    parts: list[Mapping[str, Any]] = []
    for message in messages:
        if not isinstance(message, AIMessage):
            continue
        if message.text.strip():
            parts.append(_text(message.text))
        parts += [_tool(call["name"], outputs[call["id"] or ""]) for call in message.tool_calls]
    return parts


def _text(text: str) -> Mapping[str, Any]:
    # Spaces between words are the browser's to lay out, at the end there is nothing to see.
    return {"text": text.rstrip()}


def _tool(name: str, output: str) -> Mapping[str, Any]:
    return {"tool": name, "output": output}
