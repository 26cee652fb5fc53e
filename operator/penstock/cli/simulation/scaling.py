"""`penstock simulate`: runs a scaling policy, or rules of adapter placement, on simulated engines."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError
from rich.table import Table

from penstock.cli.output.file import require_writable, write_output
from penstock.cli.output.terminal import make_console
from penstock.cli.simulation import adapters as simulate_adapters
from penstock.core.admission.admission_spec import Policy
from penstock.sim import campaign, policies, scenario
from penstock.sim.adapters.run import RULES
from penstock.sim.adapters.scenario import AdapterScenario
from penstock.sim.baselines.registry import split_knob
from penstock.sim.campaign import Campaign
from penstock.sim.capacity import sustained_rps
from penstock.sim.profile import profiles
from penstock.sim.traces.source import Format, Trace

FIGURE_FORMATS = {
    "attainment": "{:.2%}",
    "worst_attainment": "{:.1%}",
    "mean_replicas": "{:.2f}",
    "gpu_hours": "{:.1f}",
    "cost": "{:.1f}",
    "shed": "{:.0f}",
    "failed": "{:.0f}",
    "reversals": "{:.1f}",
    "scale_ups": "{:.1f}",
    "scale_downs": "{:.1f}",
    "ttft_p50_s": "{:.2f}",
    "ttft_p99_s": "{:.2f}",
    "tpot_p50_s": "{:.3f}",
    "tpot_p99_s": "{:.3f}",
}


def command(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="[SCENARIO]", help="Name of a shipped scenario, or a YAML or JSON file."
        ),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(
            help="Scaling policy; default: static. For a scenario of adapters: rules of placement, separated "
            "by commas; default: all."
        ),
    ] = "",
    param: Annotated[
        list[str] | None,
        typer.Option(help="Parameter of the policy as name=value; may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs, with seeds from 0.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Number of parallel runs.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Recorded trace to simulate instead of a scenario.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Format of the trace.")] = "azure",
    rate_scale: Annotated[float, typer.Option(help="Factor on the trace's arrival rate.")] = 1.0,
    from_s: Annotated[float, typer.Option(help="Start time within the trace, in seconds.")] = 0.0,
    duration_s: Annotated[
        float, typer.Option(help="Duration of the trace to simulate, in seconds.")
    ] = 3600.0,
    profile: Annotated[
        str | None, typer.Option(help="Profile of the engine and its GPU. Default: the scenario's.")
    ] = None,
    startup_s: Annotated[
        float | None,
        typer.Option(help="Median start-up time of a pod, in seconds. Default: the scenario's."),
    ] = None,
    ttft_s: Annotated[
        float | None, typer.Option(help="Objective for TTFT, in seconds. Default: the scenario's.")
    ] = None,
    tpot_s: Annotated[
        float | None, typer.Option(help="Objective for TPOT, in seconds. Default: the scenario's.")
    ] = None,
    min_replicas: Annotated[
        int | None, typer.Option(min=0, help="Minimum number of replicas. Default: the scenario's.")
    ] = None,
    max_replicas: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of replicas. Default: the scenario's.")
    ] = None,
    admission: Annotated[
        Policy | None,
        typer.Option(help="Admission policy of the gateway. Default: the scenario's."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            help="File to write all results to, as JSON; - is standard output.",
            callback=require_writable,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="File to plot the run with the first seed to.", callback=require_writable
        ),
    ] = None,
    capacity: Annotated[
        bool,
        typer.Option(
            help="Measure the rate that one replica sustains with the scenario's requests."
        ),
    ] = False,
    show: Annotated[
        bool, typer.Option("--list", help="List scenarios, policies and profiles.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check the arguments and simulate nothing.")
    ] = False,
) -> None:
    """Simulate a SCENARIO or a --trace under one scaling policy, or compare rules of adapter placement."""
    if show:
        _list()
        return
    try:
        content = (
            _traced(trace, form, rate_scale, from_s, duration_s) if trace else scenario.read(wanted)
        )
        if isinstance(content, dict) and "adapters" in content:
            adapters = AdapterScenario.model_validate(content)
            _require_unset(
                param=param, profile=profile, startup_s=startup_s, ttft_s=ttft_s, tpot_s=tpot_s,
                min_replicas=min_replicas, max_replicas=max_replicas, admission=admission, plot=plot,
                capacity=capacity or None,
            )  # fmt: skip
            rules = simulate_adapters.parse_rules(policy)
            if not check:
                simulate_adapters.compare_and_report(adapters, rules, seeds, jobs, json_file)
            return
        policy = policy or "static"
        chosen = scenario.Scenario.model_validate(content).with_each(
            profile=profile, startup_s=startup_s, ttft_s=ttft_s, tpot_s=tpot_s,
            min_replicas=min_replicas, max_replicas=max_replicas, admission=admission,
        )  # fmt: skip
        knobs = dict(split_knob(text) for text in param or [])
        policies.parse(policy, knobs)
        if check:
            return
        if capacity:
            _print_capacity(chosen, seeds)
            return
        start_s = time.perf_counter()
        outcome = campaign.hold(chosen, policy, knobs, seeds, jobs, plot)
        _require_arrivals(outcome)
    except (OSError, ValueError, yaml.YAMLError, ValidationError) as error:
        typer.echo(f"penstock simulate: {_reason(error)}", err=True)
        raise typer.Exit(2) from error
    wall_s = time.perf_counter() - start_s
    _print(outcome, wall_s)
    if json_file is not None:
        write_output(json_file, json.dumps(_json(outcome, wall_s), indent=1) + "\n")


def _reason(error: Exception) -> str:
    """The error as a sentence; a line for each wrong field of a scenario."""
    if not isinstance(error, ValidationError):
        return str(error)
    lines = []
    for each in error.errors():
        path = ".".join(map(str, each["loc"]))
        message = each["msg"].removeprefix("Value error, ")
        lines.append(f"{path}: {message}" if path else message)
    return "\n".join(lines)


def _require_unset(**options: object) -> None:
    """Raise ValueError if one of the options is set: they have no effect on adapters."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} has no effect on a scenario of adapters; change its file"
            )


def _require_arrivals(outcome: Campaign) -> None:
    """Raise ValueError if no request arrived."""
    if not any(outcome.total["arrivals"].per_seed):
        raise ValueError("no request arrived, so there is nothing to judge the policy by")


def _print_capacity(chosen: scenario.Scenario, seeds: int) -> None:
    """Print the request rate that one replica of each service sustains within its objectives."""
    for service in (each for several in chosen.services for each in several.alone):
        if isinstance(service.workload, Trace):
            raise ValueError("--capacity needs the request lengths of a scenario, not a trace")
        rps = sustained_rps(service, service.workload.mixes[0], service.attainment, seeds)
        typer.echo(
            f"{service.name}: one replica of {service.engine.name} holds {service.attainment:.0%} within "
            f"{service.objectives.text} at {rps:.2f} requests/s"
        )


def _traced(
    path: Path, form: Format, rate_scale: float, from_s: float, duration_s: float
) -> dict[str, Any]:
    """Content of a scenario with one service from --trace and its options.

    Engine and objectives default to those of llm-d's benchmark.
    """
    workload = {
        "kind": "trace",
        "path": str(path),
        "format": form,
        "rate_scale": rate_scale,
        "from_s": from_s,
    }
    service = {"profile": "llama-3.1-8b-h100", "ttft_s": 2.0, "tpot_s": 0.1, "workload": workload}
    return {"name": path.stem, "duration_s": duration_s, "services": [service]}


def _print(outcome: Campaign, wall_s: float) -> None:
    parts = {"": outcome.total, **outcome.by_service}
    if len(outcome.by_service) == 1:
        del parts[next(iter(outcome.by_service))]
    seeds = len(outcome.summaries)
    word = "seed" if seeds == 1 else "seeds"
    table = Table(title=f"{outcome.scenario.name}, {outcome.policy}, {seeds} {word}")
    table.add_column("")
    for name in parts:
        table.add_column(name or "all", justify="right")
    for figure, form in FIGURE_FORMATS.items():
        table.add_row(figure, *(e[figure].text(form) for e in parts.values()))
    console = make_console()
    console.print(table)
    requests = sum(outcome.total["arrivals"].per_seed)
    console.print(f"{requests:,.0f} requests in {wall_s:.1f} s: {requests / wall_s:,.0f} a second")


def _json(outcome: Campaign, wall_s: float) -> dict[str, Any]:
    services = {
        name: {figure: asdict(estimate) for figure, estimate in figures.items()}
        for name, figures in outcome.by_service.items()
    }
    return {
        "scenario": outcome.scenario.model_dump(mode="json"),
        "policy": outcome.policy,
        "params": dict(outcome.knobs),
        "seeds": len(outcome.summaries),
        "wall_s": wall_s,
        **{figure: asdict(estimate) for figure, estimate in outcome.total.items()},
        "services": services,
    }


def _list() -> None:
    for title, rows in (
        ("Scenarios", scenario.shipped()),
        ("Scenarios of adapters", scenario.shipped("adapters")),
        ("Policies", {name: _knobs_of(name) for name in policies.policies()}),
        ("Rules of adapter placement", {name: text for name, (_, text) in RULES.items()}),
        ("Profiles", {name: profile.source for name, profile in profiles().items()}),
    ):
        table = Table(title=title, show_header=False, title_justify="left")
        for name, text in rows.items():
            table.add_row(name, text)
        make_console().print(table)


def _knobs_of(policy: str) -> str:
    knobs = policies.knobs_of(policy)
    return ", ".join(f"{name}={default}" if default else name for name, default in knobs.items())
