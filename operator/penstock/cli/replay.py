"""`penstock replay`: a recording decided again, by its own rule or by another."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.core.formats.serialization import Unreadable
from penstock.core.formats.timestamps import timestamp
from penstock.core.scaling.recording import Recording
from penstock.core.scaling.rule import Rule
from penstock.sim.baselines import registry

OWN = "sizing"


def command(
    file: Annotated[Path, typer.Argument(help="What `penstock record` wrote.")],
    policy: Annotated[str, typer.Option(help="Another rule, to set beside.")] = "",
    param: Annotated[list[str] | None, typer.Option(help="A knob of it: name=value.")] = None,
) -> None:
    """The recorded rule must give the recorded decisions, to the bit; that is checked and said."""
    try:
        with file.open() as lines:
            recording = Recording.read(lines)
        if not _is_same(recording):
            raise typer.Exit(1)
        if policy or param:
            _compare(recording, policy or OWN, dict(_knob(text) for text in param or []))
    except (OSError, ValueError, TypeError) as error:
        typer.echo(f"penstock replay: {error}", err=True)
        raise typer.Exit(2) from error


def _is_same(recording: Recording) -> bool:
    for number, (tick, decision) in enumerate(recording.ticks(), 1):
        if decision != tick.decision:
            was, now = tick.decision, decision
            typer.echo(f"Decision {number} is another: {was.desired}, {was.reason}", err=True)
            typer.echo(f"now: {now.desired}, {now.reason}", err=True)
            return False
    count = len(recording.lines)
    typer.echo(f"{recording.header.service}: {count} decisions, all the same bit for bit")
    return True


def _compare(recording: Recording, policy: str, knobs: dict[str, Any]) -> None:
    rule, state = _rule(recording, policy, knobs)
    table = Table("time", "ready", "recorded", policy, "why")
    before: tuple[int, int] | None = None
    sums, changes = [0, 0], [-1, -1]
    for line, decision in recording.under(rule, state):
        numbers = line.decision.desired, decision.desired
        sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        changes = [
            count + (before is None or before[i] != numbers[i]) for i, count in enumerate(changes)
        ]
        if numbers != before:
            ready = str(len(line.seen.ready))
            at = timestamp(line.seen.now_s)[11:19]
            table.add_row(at, ready, *map(str, numbers), decision.reason)
        before = numbers
    count = max(1, len(recording.lines))
    table.add_section()
    table.add_row("mean", "", *(f"{total / count:.2f}" for total in sums), "")
    table.add_row("changes", "", *map(str, changes), "")
    Console(markup=False).print(table)
    typer.echo(
        "The engines are those that were there: another number would have changed their load."
    )


def _rule(recording: Recording, policy: str, knobs: dict[str, Any]) -> tuple[Rule[Any], Any]:
    """Raises ValueError or TypeError for a rule or a knob that is not there."""
    if policy == OWN:
        own = replace(recording.header.settings.rule, **knobs)
        return own, recording.header.state
    if policy not in registry.PUBLISHED:
        raise Unreadable(f"no rule {policy!r}; there are {OWN}, {', '.join(registry.PUBLISHED)}")
    rule = registry.build(policy, recording.profile(), **knobs)
    return rule, rule.initial()


def _knob(text: str) -> tuple[str, registry.Knob]:
    name, is_given, value = text.partition("=")
    if not is_given:
        raise ValueError(f"--param {text!r} is not of the form name=value")
    name = name.strip().replace("-", "_")
    if value in ("true", "false"):
        return name, value == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return name, number(value)
    return name, value
