"""Options of `penstock simulate-rollout`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output.file import require_writable
from penstock.sim.rollout.judges import JudgeName
from penstock.sim.rollout.scenario import Latency

Rate = Annotated[float, typer.Option(help="Requests per second to the canary.", min=0.001)]
Judge = Annotated[JudgeName, typer.Option(help="Judge to simulate.")]
EffectText = Annotated[
    str,
    typer.Option(
        help="Regressions of the canary: factors, and for errors the added fraction of requests, as in "
        "ttft=1.2,tpot=1.1,service=1.2,errors=0.02,output=2."
    ),
]
BaselineRate = Annotated[
    float | None, typer.Option(help="Requests per second to stable. Default: 9 times --rate.")
]
Control = Annotated[
    bool, typer.Option("--control", help="Compare with control pods at the canary's rate.")
]
Grow = Annotated[
    bool,
    typer.Option(
        "--grow",
        help="Grow the rates of the canary and its control pods with the canary's weight; "
        "--rate is the rate at the start.",
    ),
]
Stream = Annotated[
    bool, typer.Option(help="Whether answers are streamed. Else only whole answers have times.")
]
Utilization = Annotated[
    float, typer.Option(help="Utilization of pods, with --latency queue.", min=0.01, max=0.95)
]
Hours = Annotated[float, typer.Option(help="Maximum duration of a canary, in hours.", min=0.02)]
Runs = Annotated[int, typer.Option(help="Number of canaries.", min=1)]
LatencyName = Annotated[Latency, typer.Option(help="Latency distribution.")]
TtftSigma = Annotated[float, typer.Option(help="Standard deviation of the logarithm of TTFT.")]
TpotSigma = Annotated[float, typer.Option(help="Standard deviation of the logarithm of TPOT.")]
ErrorShare = Annotated[float, typer.Option(help="Fraction of stable's requests that fail.")]
LengthShare = Annotated[
    float,
    typer.Option(help="Fraction of the variance of log TTFT that prompt length explains."),
]
WarmUpS = Annotated[float, typer.Option(help="Time until the prefix cache is warm, in seconds.")]
HistoryHours = Annotated[
    float, typer.Option(help="Length of stable's error history before the canary, in hours.")
]
Alpha = Annotated[float, typer.Option(help="Maximum probability of a false abort.")]
Seed = Annotated[int, typer.Option(help="Seed of the random numbers.")]
Jobs = Annotated[int, typer.Option(help="Number of parallel processes.", min=1)]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", help="File to write the results to, as JSON.", callback=require_writable
    ),
]
