"""`penstock replay`: repeats recorded scaling decisions, with the same rule or another."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli.output.terminal import make_console
from penstock.core.formats.serialization import DecodeError
from penstock.core.formats.timestamps import timestamp
from penstock.core.scaling.by_kv.tick import KvSettings
from penstock.core.scaling.recording import Recording
from penstock.core.scaling.rule import Rule
from penstock.sim.baselines import registry

OBJECTIVES, KV = "objectives", "kv"  # the operator's rules: with objectives, and without


def command(
    file: Annotated[Path, typer.Argument(help="File that `penstock record` wrote.")],
    policy: Annotated[
        str, typer.Option(help="Scaling rule to compare the recorded decisions with.")
    ] = "",
    param: Annotated[
        list[str] | None,
        typer.Option(help="Parameter of that rule as name=value; may be repeated."),
    ] = None,
) -> None:
    """Repeat recorded decisions and check that they are identical; with --policy, compare rules."""
    try:
        with file.open() as lines:
            recording = Recording.read(lines)
        if not _check(recording):
            raise typer.Exit(1)
        if policy or param:
            texts = dict(registry.split_knob(text) for text in param or [])
            knobs = {name: registry.parse_knob(text) for name, text in texts.items()}
            _compare(recording, policy or _recorded_rule(recording), knobs)
    except DecodeError as error:
        typer.echo(f"penstock replay: {file} cannot be replayed: {error}", err=True)
        raise typer.Exit(2) from error
    except (OSError, ValueError, TypeError, ArithmeticError) as error:
        typer.echo(f"penstock replay: {error}", err=True)
        raise typer.Exit(2) from error


def _check(recording: Recording) -> bool:
    """Print whether the recorded rule repeats all its decisions."""
    for number, (tick, decision) in enumerate(recording.replay(), 1):
        if decision != tick.decision:
            was, now = tick.decision, decision
            typer.echo(f"decision {number} differs", err=True)
            typer.echo(f"recorded: {was.desired}, {was.reason}", err=True)
            typer.echo(f"replayed: {now.desired}, {now.reason}", err=True)
            return False
    count = len(recording.lines)
    typer.echo(f"{recording.header.service}: {count} decisions, all identical")
    return True


def _compare(recording: Recording, policy: str, knobs: dict[str, Any]) -> None:
    """Print a table of the recorded numbers of replicas and those of another rule."""
    rule, state = _rule(recording, policy, knobs)
    table = Table("time", "ready", "recorded", policy, "reason")
    last: tuple[int, int] | None = None
    sums, changes = [0, 0], [-1, -1]
    for line, decision in recording.replay_with(rule, state):
        numbers = line.decision.desired, decision.desired
        sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        changes = [
            count + (last is None or last[i] != numbers[i]) for i, count in enumerate(changes)
        ]
        if numbers != last:
            ready = str(len(line.seen.ready))
            at = timestamp(line.seen.now_s)[11:19]
            table.add_row(at, ready, *map(str, numbers), decision.reason)
        last = numbers
    count = len(recording.lines)
    table.add_section()
    table.add_row("mean", "", *(f"{total / count:.2f}" for total in sums), "")
    table.add_row("changes", "", *map(str, changes), "")
    make_console().print(table)
    typer.echo(
        "Metrics are those of the recorded replicas; another number would have changed the load of each."
    )


def _rule(recording: Recording, policy: str, knobs: dict[str, Any]) -> tuple[Rule[Any], Any]:
    """Build the rule and its initial state. Raises ValueError or TypeError if that is impossible."""
    recorded = _recorded_rule(recording)
    if recording.changes_rule:
        raise DecodeError(
            "spec.objectives was set or removed during the recording, so no rule fits all of it"
        )
    if policy == recorded:
        return replace(recording.header.settings.rule, **knobs), recording.header.state
    published = registry.PUBLISHED.get(policy)
    if published is None:
        known = ", ".join((recorded, *registry.PUBLISHED))
        raise DecodeError(f"no rule {policy!r}; known rules: {known}")
    if recorded == OBJECTIVES:
        rule = published.build(recording.profile(), **knobs)
    elif published.takes_profile or published.needs_objectives:
        raise DecodeError(
            f"{policy} needs the objectives of the service or the learned speed of its engines; "
            "the recording has neither, as the service had no spec.objectives"
        )
    else:
        rule = published.make(**knobs)
    return rule, rule.initial()


def _recorded_rule(recording: Recording) -> str:
    return KV if isinstance(recording.header.settings, KvSettings) else OBJECTIVES
