"""`penstock simulate-rollout`: measures a canary judge's error rates on simulated canaries."""

import json

import typer

from penstock.cli.simulation import rollout_options as option
from penstock.sim.rollout.campaign import simulate, summary
from penstock.sim.rollout.scenario import Effect, Scenario


def command(
    rate: option.Rate,
    judge: option.Judge = "penstock",
    effect: option.EffectText = "",
    baseline_rate: option.BaselineRate = None,
    control: option.Control = False,
    grow: option.Grow = False,
    stream: option.Stream = True,
    utilization: option.Utilization = 0.3,
    hours: option.Hours = 1.0,
    runs: option.Runs = 300,
    latency: option.LatencyName = "lognormal",
    ttft_sigma: option.TtftSigma = 0.8,
    tpot_sigma: option.TpotSigma = 0.25,
    error_share: option.ErrorShare = 0.001,
    length_share: option.LengthShare = 0.0,
    warm_up_s: option.WarmUpS = 0.0,
    history_hours: option.HistoryHours = 1.0,
    alpha: option.Alpha = 0.01,
    seed: option.Seed = 0,
    jobs: option.Jobs = 1,
    json_file: option.JsonFile = None,
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
