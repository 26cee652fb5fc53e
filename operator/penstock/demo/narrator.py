"""Prints the demo to a terminal: chapters, commands, facts and progress."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table


class Narrator:
    """Prints a line for each event of the demo; spinners only on a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._chapter = 0

    def chapter(self, title: str) -> None:
        self._chapter += 1
        self.console.print()
        self.console.rule(f"[bold]{self._chapter}. {escape(title)}", align="left")

    def say(self, text: str) -> None:
        self.console.print(f"  {escape(text)}")

    def fact(self, name: str, value: str) -> None:
        self.console.print(f"  [green]✓[/] {escape(name)}: [bold]{escape(value)}[/]")

    def command(self, *words: str) -> None:
        self.console.print(f"  [cyan]$ {escape(' '.join(words))}[/]")

    def decision(self, at_s: float, desired: int, reason: str) -> None:
        self.console.print(
            f"  [magenta]{at_s:5.0f} s  replicas → {desired}[/]  {escape(reason)}", highlight=False
        )

    def yaml(self, text: str) -> None:
        self.console.print(Syntax(text.strip(), "yaml", theme="ansi_dark", padding=(0, 4)))

    def stream(self, text: str) -> None:
        self.console.print(escape(text), end="", highlight=False, soft_wrap=True)

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        table = Table(
            title=title, title_justify="left", show_header=False, box=None, padding=(0, 2)
        )
        for name, value in rows:
            table.add_row(escape(name), f"[bold]{escape(value)}[/]")
        self.console.print(table)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner with the elapsed seconds during the block."""
        columns = (SpinnerColumn(), TextColumn("  {task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            progress.add_task(escape(text), total=None)
            yield
