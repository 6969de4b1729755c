"""What the demo prints: a turn's messages as they come, and the table at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vystak_turns_client.reader import LoggedMessage
from vystak_turns_rpc import events


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one turn; `faults` are the promises that were not kept."""

    title: str
    struck: str
    thread_id: str | None
    steps: int
    steps_once: int
    replies: int
    terminal_events: int
    rewinds: int
    run_twice: tuple[str, ...]
    attempts: int
    delay_s: float
    faults: tuple[str, ...]


@dataclass(slots=True)
class Screen:
    """Prints a turn; text grows on its line word by word."""

    console: Console
    _in_text: bool = False
    _arguments: dict[str, str] = field(default_factory=dict)

    def show(self, message: LoggedMessage) -> None:
        """Print one message of the log."""
        event = message.event
        match events.parse_event(event):
            case events.TextDelta(delta=delta):
                if not self._in_text:
                    self.console.print(Text(f"{message.seq:>4}  ", "dim"), end="")
                self._in_text = True
                self.console.print(Text(delta), end="")
            case events.ItemAdded(item=events.FunctionCallItem(call_id=call_id, name=name)):
                self._arguments[call_id] = name
            case events.ArgumentsDone(call_id=call_id, arguments=arguments):
                name = self._arguments.get(call_id, "?")
                self._line(message.seq, f"→ {name} {arguments}", "cyan")
            case events.ItemAdded(item=events.FunctionCallOutputItem(output=output)):
                self._line(message.seq, f"← {output}", "green")
            case events.TurnRewind(to_seq=to_seq):
                taken_back = message.seq - 1 - to_seq
                words = f"⟲ rewind to seq {to_seq}: readers drop {_counted(taken_back)}"
                self._line(message.seq, words, "bold magenta")
            case events.ResponseCompleted():
                self._line(message.seq, "■ completed", "bold green")
            case events.ResponseFailed(response=response):
                words = str(response.get("error", {}).get("message"))
                self._line(message.seq, f"■ failed: {words}", "bold red")
            case _:
                pass

    def say(self, words: str) -> None:
        """Print what the demo itself does."""
        self._end_text()
        self.console.print(Text(f"      {words}", "bold yellow"))

    def _line(self, seq: int, words: str, style: str) -> None:
        self._end_text()
        self.console.print(Text.assemble((f"{seq:>4}  ", "dim"), (words, style)))

    def _end_text(self) -> None:
        if self._in_text:
            self.console.print()
        self._in_text = False


def _counted(messages: int) -> str:
    if messages == 0:
        return "nothing, the turn goes on from there"
    return "1 message" if messages == 1 else f"{messages} messages"


def show_table(console: Console, verdicts: Sequence[Verdict], took_s: float) -> None:
    """Print what came of the turns, and which promises were broken."""
    if not verdicts:
        return
    table = Table(title=f"What came of the turns ({took_s:.0f} s)")
    table.add_column(f"struck in step {verdicts[0].struck}", style="bold")
    for verdict in verdicts:
        table.add_column(verdict.title)
    for name, cell in ROWS.items():
        table.add_row(name, *(cell(verdict) for verdict in verdicts))
    console.print(table)
    for verdict in verdicts:
        for fault in verdict.faults:
            console.print(f"[bold red]not so[/] ({verdict.title}): {fault}")


ROWS: Final[Mapping[str, Callable[[Verdict], str]]] = {
    "steps shown once": lambda verdict: f"{verdict.steps_once} of {verdict.steps}",
    "replies": lambda verdict: str(verdict.replies),
    "terminal events": lambda verdict: str(verdict.terminal_events),
    "rewinds": lambda verdict: str(verdict.rewinds),
    "steps run twice": lambda verdict: ", ".join(verdict.run_twice) or "none",
    "attempts spent": lambda verdict: str(verdict.attempts),
    "health to next event": lambda verdict: f"{verdict.delay_s:.2f} s",
    "promises": lambda verdict: "[red]broken[/]" if verdict.faults else "[green]kept[/]",
}
