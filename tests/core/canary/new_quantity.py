"""Program: a canary that decodes slower, from the gateway's counts to the verdict, and in the simulator.

test_new_quantity.py runs it where the package compares decode times too. It prints what it saw as JSON, or
with `records` a trial and a stats report.
"""

import json
import sys
from dataclasses import replace

import numpy as np
from tests.gateway.engine_answers import EVENT
from tests.gateway.stats.recorded_requests import USAGE, Clock, close, endpoint

from penstock.clients.pods import stats_report
from penstock.core.canary.evidence import NO_HISTORY, Faults
from penstock.core.canary.judge import judge
from penstock.core.canary.judge_state import JudgeState
from penstock.core.canary.verdict import Abort, Accept
from penstock.core.observed.gateway_report import VERSION, GatewayReport, GatewayTotals
from penstock.core.rollout.blocks import ComparedArms, build_block
from penstock.core.rollout.trial import VERSION as TRIAL_VERSION
from penstock.core.rollout.trial import Trial, evidence, from_record, to_record
from penstock.core.routing.apis import COMPLETIONS
from penstock.core.spec.canary import CanarySpec
from penstock.gateway.apis.request import parse
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.stats.service_stats import ServiceStats
from penstock.sim.rollout import minutes
from penstock.sim.rollout.growth import Growth
from penstock.sim.rollout.scenario import Scenario as DrawnScenario
from penstock.sim.run import run
from penstock.sim.scenario import Scenario

SPEC, SERVICE = CanarySpec(), "default/chat"
SIDES = ComparedArms(frozenset({"default/new"}), frozenset({"default/old"}))
LENGTHS = {
    "prompt": {"kind": "lognormal", "median": 800, "p99": 4000},
    "output": {"kind": "lognormal", "median": 60, "p99": 100},
}


def stream(stats, clock, name, gap_s):
    """Stream an answer of three tokens from an engine, as the gateway does."""
    request = replace(parse(b'{"model": "chat"}', COMPLETIONS), is_stream=True, prompt_bytes=1200)
    record = RequestRecord(stats, clock, request, clock.now_s)
    with record.in_flight(endpoint(name), None):
        clock.now_s += 0.5 + gap_s / 10
        record.start_response(is_stream=True)
        for _ in range(3):
            record.add_chunk(EVENT)
            clock.now_s += gap_s
        record.add_chunk(b"data: " + USAGE % 3 + b"\n\ndata: [DONE]\n\n")
    close(record)


def report_of(stats):
    return stats_report.encode(GatewayReport(VERSION, 1.0, {}, {SERVICE: stats.arms()})).decode()


def judged_by_gateways():
    """The verdict and the state after blocks in which answers of the canary take 1.5 times as long."""
    stats, clock = ServiceStats(), Clock()
    totals, before, state = GatewayTotals(), {}, JudgeState.begin(SPEC)
    for index in range(60):
        for number in range(12):
            jitter = 1 + 0.1 * ((7 * index + 3 * number) % 5)
            name, factor = ("new", 1.5) if number % 3 == 0 else ("old", 1.0)
            stream(stats, clock, name, 0.1 * factor * jitter)
        report = stats_report.parse("g", report_of(stats))
        totals = totals.updated({"g": report}, ["g"], clock.now_s)
        after = totals.arms[SERVICE]
        verdict, state = judge(SPEC, state, build_block(10.0, before, after, SIDES, Faults()))
        before = after
        if isinstance(verdict, Abort | Accept):
            break
    return verdict, state


def simulated():
    """The phases of a simulated release of a revision that is like the stable one."""
    tolerances = {"latency": 50, "error": 10, "violation": 30}
    canary = {f"{name}TolerancePercent": percent for name, percent in tolerances.items()}
    service = {
        "profile": "llama-3.1-8b-h100", "ttft_s": 1.0, "tpot_s": 0.05, "startup_s": 20.0,
        "min_replicas": 2, "max_replicas": 6,
        "workload": {"kind": "rate", "points": [(0, 8), (400, 8)], "mixes": [{"classes": [LENGTHS]}]},
        "release": {"at_s": 30.0, "rollout": {"strategy": "Canary", "canary": canary}},
    }  # fmt: skip
    scenario = {"name": "small", "duration_s": 400.0, "services": [service]}
    done = run(Scenario.model_validate(scenario), "hpa-queue", 0)
    return [(phase, reason) for _, phase, reason in done.services[0].rollout.phases]


def drawn():
    """Numbers of successful requests in a drawn minute of the control, and of those with a decode time."""
    scenario = DrawnScenario(canary_rate=1.0, control_rate=9.0)
    draw = np.random.default_rng(1)
    minute = next(minutes.live(scenario, minutes.objectives(scenario), draw, Growth()))
    counted = sum(block.control.decode.n for block in minute.blocks)
    return [minute.control.requests - minute.control.errors, counted]


if sys.argv[1:] == ["records"]:
    counted = ServiceStats()
    stream(counted, Clock(), "new", 0.1)
    trial = Trial.begin(SPEC, "d", NO_HISTORY)
    print(json.dumps({"trial": to_record(trial), "report": report_of(counted)}))
else:
    other = json.loads(sys.stdin.read())
    seen, reached = judged_by_gateways()
    print(
        json.dumps(
            {
                "verdict": [type(seen).__name__, seen.reason],
                "metrics": [each["metric"] for each in evidence(SPEC, reached)],
                "is_stored": from_record(to_record(Trial(TRIAL_VERSION, "d", reached))) is not None,
                "phases": simulated(),
                "drawn": drawn(),
                "old_trial": from_record(other["trial"]),
                "old_report": stats_report.parse("g", other["report"]).reason,
            }
        )
    )
