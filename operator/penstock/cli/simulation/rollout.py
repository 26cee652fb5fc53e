"""`penstock simulate-rollout`: measures a canary judge's error rates on simulated canaries."""

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output.file import require_writable
from penstock.sim.rollout.campaign import simulate, summary
from penstock.sim.rollout.judges import JudgeName
from penstock.sim.rollout.scenario import Effect, Latency, Scenario


def command(
    rate: Annotated[float, typer.Option(help="Requests per second to the canary.", min=0.001)],
    judge: Annotated[JudgeName, typer.Option(help="Judge to simulate.")] = "penstock",
    effect: Annotated[
        str,
        typer.Option(
            help="Regressions of the canary: factors, and for errors the added fraction of requests, as in "
            "ttft=1.2,tpot=1.1,service=1.2,errors=0.02,output=2."
        ),
    ] = "",
    baseline_rate: Annotated[
        float | None, typer.Option(help="Requests per second to stable. Default: 9 times --rate.")
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Compare with control pods at the canary's rate.")
    ] = False,
    grow: Annotated[
        bool,
        typer.Option(
            "--grow",
            help="Grow the rates of the canary and its control pods with the canary's weight; "
            "--rate is the rate at the start.",
        ),
    ] = False,
    stream: Annotated[
        bool, typer.Option(help="Whether answers are streamed. Else only whole answers have times.")
    ] = True,
    utilization: Annotated[
        float, typer.Option(help="Utilization of pods, with --latency queue.", min=0.01, max=0.95)
    ] = 0.3,
    hours: Annotated[
        float, typer.Option(help="Maximum duration of a canary, in hours.", min=0.02)
    ] = 1.0,
    runs: Annotated[int, typer.Option(help="Number of canaries.", min=1)] = 300,
    latency: Annotated[Latency, typer.Option(help="Latency distribution.")] = "lognormal",
    ttft_sigma: Annotated[
        float, typer.Option(help="Standard deviation of the logarithm of TTFT.")
    ] = 0.8,
    tpot_sigma: Annotated[
        float, typer.Option(help="Standard deviation of the logarithm of TPOT.")
    ] = 0.25,
    error_share: Annotated[
        float, typer.Option(help="Fraction of stable's requests that fail.")
    ] = 0.001,
    length_share: Annotated[
        float,
        typer.Option(help="Fraction of the variance of log TTFT that prompt length explains."),
    ] = 0.0,
    warm_up_s: Annotated[
        float, typer.Option(help="Time until the prefix cache is warm, in seconds.")
    ] = 0.0,
    history_hours: Annotated[
        float, typer.Option(help="Length of stable's error history before the canary, in hours.")
    ] = 1.0,
    alpha: Annotated[float, typer.Option(help="Maximum probability of a false abort.")] = 0.01,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    jobs: Annotated[int, typer.Option(help="Number of parallel processes.", min=1)] = 1,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", help="File to write the results to, as JSON.", callback=require_writable
        ),
    ] = None,
) -> None:
    """Measure how often a judge aborts a good canary, and how fast it aborts a bad one."""
    try:
        regression = Effect.parse(effect)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    scenario = Scenario(
        canary_rate=rate,
        control_rate=rate if control or grow else baseline_rate or 9 * rate,
        hours=hours,
        latency=latency,
        effect=regression,
        ttft_sigma=ttft_sigma,
        tpot_sigma=tpot_sigma,
        error_share=error_share,
        length_share=length_share,
        warm_up_s=warm_up_s,
        history_hours=history_hours,
        utilization=utilization,
        grows=grow,
        streams=stream,
    )
    text = json.dumps(summary(simulate(judge, scenario, runs, seed, jobs, alpha)), indent=2)
    typer.echo(text)
    if json_file:
        json_file.write_text(text + "\n")
