"""`penstock simulate-rollout`: a judge of canaries before thousands of simulated ones."""

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output_file import writable
from penstock.sim.rollout.campaign import simulate, summary
from penstock.sim.rollout.judges import JudgeName
from penstock.sim.rollout.scenario import Effect, Latency, Scenario


def command(
    rate: Annotated[float, typer.Option(help="Requests per second to the canary.", min=0.001)],
    judge: Annotated[JudgeName, typer.Option(help="Who judges.")] = "penstock",
    effect: Annotated[
        str,
        typer.Option(
            help="What the canary does worse: ttft=1.2,tpot=1.1,service=1.2,errors=0.02,output=2"
        ),
    ] = "",
    baseline_rate: Annotated[
        float | None, typer.Option(help="Requests per second to stable; nine times --rate.")
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Compare with control pods at the canary's rate.")
    ] = False,
    grow: Annotated[
        bool,
        typer.Option(
            "--grow",
            help="Rates are those of the start, of the canary and of its control pods alike, and "
            "grow with the weight that the judge gives.",
        ),
    ] = False,
    utilization: Annotated[
        float, typer.Option(help="How busy pods are, with --latency queue.", min=0.01, max=0.95)
    ] = 0.3,
    hours: Annotated[float, typer.Option(help="How long a canary may take.", min=0.02)] = 1.0,
    runs: Annotated[int, typer.Option(help="How many canaries.", min=1)] = 300,
    latency: Annotated[Latency, typer.Option(help="What latencies are like.")] = "lognormal",
    ttft_sigma: Annotated[float, typer.Option(help="Of log TTFT.")] = 0.8,
    tpot_sigma: Annotated[float, typer.Option(help="Of log TPOT.")] = 0.25,
    error_share: Annotated[float, typer.Option(help="Of stable's requests that fail.")] = 0.001,
    length_share: Annotated[
        float, typer.Option(help="Part of TTFT's variance that prompt length explains.")
    ] = 0.0,
    warm_up_s: Annotated[float, typer.Option(help="Until the prefix cache is filled.")] = 0.0,
    history_hours: Annotated[
        float, typer.Option(help="Of stable's errors that were seen before.")
    ] = 1.0,
    alpha: Annotated[float, typer.Option(help="Chance of a false abort.")] = 0.01,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the figures.", callback=writable)
    ] = None,
) -> None:
    """How often a judge aborts a canary that is as good as stable, and how fast it finds one that
    is not."""
    try:
        worse = Effect.parse(effect)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    scenario = Scenario(
        canary_rate=rate,
        control_rate=rate if control or grow else baseline_rate or 9 * rate,
        hours=hours,
        latency=latency,
        effect=worse,
        ttft_sigma=ttft_sigma,
        tpot_sigma=tpot_sigma,
        error_share=error_share,
        length_share=length_share,
        warm_up_s=warm_up_s,
        history_hours=history_hours,
        utilization=utilization,
        grows=grow,
    )
    told = json.dumps(summary(simulate(judge, scenario, runs, seed, jobs, alpha)), indent=2)
    typer.echo(told)
    if json_file:
        json_file.write_text(told + "\n")
