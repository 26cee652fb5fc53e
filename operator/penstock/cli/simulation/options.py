"""Options of `penstock simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output.file import require_writable
from penstock.core.routing.admission import Policy
from penstock.sim.traces.source import Format

ScenarioName = Annotated[
    str,
    typer.Argument(
        metavar="[SCENARIO]", help="Name of a shipped scenario, or a YAML or JSON file."
    ),
]
PolicyName = Annotated[
    str,
    typer.Option(
        help="Scaling policy; default: static. For a scenario of adapters: rules of placement, separated "
        "by commas; default: all."
    ),
]
Params = Annotated[
    list[str] | None,
    typer.Option(help="Parameter of the policy as name=value; may be repeated."),
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of runs, with seeds from 0.")]
Jobs = Annotated[int, typer.Option(min=1, help="Number of parallel runs.")]
Trace = Annotated[
    Path | None, typer.Option(help="Recorded trace to simulate instead of a scenario.")
]
TraceFormat = Annotated[Format, typer.Option("--format", help="Format of the trace.")]
RateScale = Annotated[float, typer.Option(help="Factor on the trace's arrival rate.")]
FromS = Annotated[float, typer.Option(help="Start time within the trace, in seconds.")]
DurationS = Annotated[float, typer.Option(help="Duration of the trace to simulate, in seconds.")]
Profile = Annotated[
    str | None, typer.Option(help="Profile of the engine and its GPU. Default: the scenario's.")
]
StartupS = Annotated[
    float | None,
    typer.Option(help="Median start-up time of a pod, in seconds. Default: the scenario's."),
]
TtftS = Annotated[
    float | None, typer.Option(help="Objective for TTFT, in seconds. Default: the scenario's.")
]
TpotS = Annotated[
    float | None, typer.Option(help="Objective for TPOT, in seconds. Default: the scenario's.")
]
MinReplicas = Annotated[
    int | None, typer.Option(min=0, help="Minimum number of replicas. Default: the scenario's.")
]
MaxReplicas = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of replicas. Default: the scenario's.")
]
Admission = Annotated[
    Policy | None,
    typer.Option(help="Admission policy of the gateway. Default: the scenario's."),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="File to write all results to, as JSON; - is standard output.",
        callback=require_writable,
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(help="File to plot the run with the first seed to.", callback=require_writable),
]
Capacity = Annotated[
    bool,
    typer.Option(help="Measure the rate that one replica sustains with the scenario's requests."),
]
ShowList = Annotated[bool, typer.Option("--list", help="List scenarios, policies and profiles.")]
Check = Annotated[bool, typer.Option("--check", help="Check the arguments and simulate nothing.")]
