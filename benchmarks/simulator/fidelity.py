"""Compares the simulator with a real local cluster that gets the same requests.

    python -m benchmarks.simulator.fidelity [--trace FILE --format azure] [--rps 4] [--minutes 5]

A cluster serves the demo's model, and requests are sent open loop. An engine is calibrated through the
gateway before and after, because the speed of a machine drifts within minutes; the simulator uses the profile
of both sweeps. The means of TTFT and of total time are compared in buckets of prompt and output length. Exits
with 1 if the mean absolute error exceeds 20 % for TTFT or 10 % for total time.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import mean, quantiles
from typing import NamedTuple

import httpx
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.http_load import open_loop
from benchmarks.options import option_parser

from penstock.calibration.facts import Facts, facts
from penstock.calibration.fit import Fit, Sample, fit
from penstock.calibration.probe import Prober
from penstock.calibration.sweep import Limits, sweep
from penstock.core.spec.service import ENGINE_PORT
from penstock.demo.model import LONG_TRAIN_STEPS, ensure_model
from penstock.demo.stage import Stage
from penstock.sim.profile import Profile, write
from penstock.sim.request import Request
from penstock.sim.run import run
from penstock.sim.scenario import Scenario
from penstock.sim.traces.read import requests_of
from penstock.sim.traces.source import Trace
from penstock.sim.workload.generate import Rate, open_requests
from penstock.sim.workload.lengths import LogNormal, Mix, RequestClass

ROOT = Path(__file__).parents[2]
SERVICE = "faithful"
TTFT_BAR, E2E_BAR = 0.20, 0.10
NUM_BUCKETS = 3  # buckets of prompt length, and the same number of output length


class RequestLatency(NamedTuple):
    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    e2e_s: float


def manifest(replicas: int) -> str:
    return f"""
apiVersion: serving.penstock.dev/v1alpha1
kind: InferenceService
metadata: {{name: {SERVICE}}}
spec:
  model: {{uri: pvc://models/penstock-tiny}}
  engine: {{kvCache: {{memory: 256Mi}}}}
  resources: {{limits: {{cpu: 1, memory: 2Gi}}}}
  replicas: {replicas}
  scaling: {{mode: External, maxReplicas: {max(1, replicas)}}}
"""


def plan_requests(options: argparse.Namespace, most_tokens: int) -> list[Request]:
    """Requests in order of arrival, with lengths bounded by the model."""
    duration_s, random = options.minutes * 60.0, Random(options.seed)
    if options.trace:
        trace = Trace(path=options.trace, format=options.format)
        found, _ = requests_of(trace, duration_s, random)
        keep = min(1.0, options.rps * duration_s / len(found))
        found = [request for request in found if random.random() < keep]
    else:
        lengths = RequestClass(
            prompt=LogNormal(median=200, p99=1200), output=LogNormal(median=60, p99=300)
        )
        workload = Rate(
            points=((0.0, options.rps), (duration_s, options.rps)), cv=1.5,
            mixes=(Mix(classes=(lengths,)),),
        )  # fmt: skip
        found = list(open_requests(workload, duration_s, random))
    for request in found:
        request.output_tokens = max(2, min(request.output_tokens, most_tokens // 4))
        request.prompt_tokens = min(request.prompt_tokens, most_tokens - request.output_tokens - 1)
    return found


async def send(prober: Prober, requests: Sequence[Request]) -> list[RequestLatency]:
    async def send_one(request: Request) -> RequestLatency:
        answer = await prober.ask(request.prompt_tokens, request.output_tokens)
        took_s = answer.token_s[-1] - answer.sent_s
        return RequestLatency(request.prompt_tokens, request.output_tokens, answer.ttft_s, took_s)

    return await open_loop([(request.arrival_s, request) for request in requests], send_one)


def simulate(
    profile: Profile, requests: Sequence[Request], options: argparse.Namespace
) -> list[RequestLatency]:
    with tempfile.TemporaryDirectory() as folder:
        trace, row = Path(folder, "trace.csv"), Path(folder, "profile.yaml")
        row.write_text(write(profile))
        lines = [
            f"{datetime.fromtimestamp(r.arrival_s, UTC):%Y-%m-%d %H:%M:%S.%f},"
            f"{r.prompt_tokens},{r.output_tokens}"
            for r in requests
        ]
        trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
        scenario = Scenario.model_validate({
            "name": "fidelity",
            "duration_s": options.minutes * 60 + 1,
            "services": [{
                "profile": str(row), "ttft_s": 1, "tpot_s": 0.1, "admission": "none",
                "workload": {"kind": "trace", "path": str(trace), "format": "azure"},
                "min_replicas": options.replicas, "max_replicas": options.replicas,
            }],
        })  # fmt: skip
        done = run(scenario, "static", options.seed, {"replicas": str(options.replicas)})
    found = done.services[0].gateway.requests
    return [
        RequestLatency(
            r.prompt_tokens, r.output_tokens, r.ttft_s or 0.0, (r.end_s or 0.0) - r.arrival_s
        )
        for r in found
    ]


def compare(
    real: Sequence[RequestLatency], simulated: Sequence[RequestLatency]
) -> tuple[float, float]:
    """Mean absolute relative errors of the bucket means of TTFT and of total time."""
    cuts = [quantiles([seen[index] for seen in real], n=NUM_BUCKETS) for index in (0, 1)]
    buckets: dict[tuple[int, int], list[tuple[RequestLatency, RequestLatency]]] = defaultdict(list)
    for was, said in zip(real, simulated, strict=True):
        place = tuple(sum(was[index] > cut for cut in cuts[index]) for index in (0, 1))
        buckets[place[0], place[1]].append((was, said))
    errors = []
    print("prompt  output  requests   TTFT real / simulated ms     whole real / simulated ms")
    for _, pairs in sorted(buckets.items()):
        means = [[mean(pair[side][field] for pair in pairs) for side in (0, 1)] for field in (2, 3)]
        (ttft, said_ttft), (e2e, said_e2e) = means
        errors.append((abs(said_ttft / ttft - 1), abs(said_e2e / e2e - 1)))
        prompt, output = (mean(pair[0][field] for pair in pairs) for field in (0, 1))
        print(
            f"{prompt:6.0f} {output:7.0f} {len(pairs):9d} {ttft * 1e3:11.1f} / {said_ttft * 1e3:6.1f}"
            f"  {e2e * 1e3:17.0f} / {said_e2e * 1e3:.0f}"
        )
    return mean(e[0] for e in errors), mean(e[1] for e in errors)


async def read_facts(stage: Stage) -> Facts:
    """Facts that the engine reports about itself."""
    view = await stage.view(SERVICE)
    async with httpx.AsyncClient(base_url=f"http://{view.pods[0].address}:{ENGINE_PORT}") as engine:
        return await facts(engine)


async def scale(stage: Stage, replicas: int) -> None:
    stage.kubectl("apply", "-f", "-", stdin=manifest(replicas))
    await stage.wait_for_engines(SERVICE, replicas, within_s=120)


async def measure(prober: Prober, said: Facts) -> list[Sample]:
    samples = await sweep(prober, Limits.of(said), lambda line: print(f"measuring {line}"))
    print(f"the model is off by {fit(samples).error:.1%} of a sample on average")
    return samples


def profile_of(said: Facts, fitted: Fit) -> Profile:
    limits = Limits.of(said)
    return Profile(
        name="measured", source="penstock calibrate", gpu="cpu", gpu_hour_price=0,
        times=fitted.times, request_s=fitted.request_s,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        block_size=said.block_size, kv_tokens=said.kv_tokens,
    )  # fmt: skip


async def campaign(options: argparse.Namespace) -> bool:
    models, unlimited = (
        ensure_model(ROOT / "docs", steps=LONG_TRAIN_STEPS),
        httpx.Limits(max_connections=None),
    )
    async with (
        temporary_stage("fidelity", models) as stage,
        httpx.AsyncClient(
            base_url=stage.cluster.gateway_url, timeout=120, limits=unlimited
        ) as client,
    ):
        await scale(stage, 1)
        said = await read_facts(stage)
        prober = Prober(client, SERVICE, options.seed)
        before = await measure(prober, said)
        await scale(stage, options.replicas)
        requests = plan_requests(options, said.max_model_len)
        real = await send(prober, requests)
        await scale(stage, 1)
        after = await measure(prober, said)
    profile = profile_of(said, fit([*before, *after]))
    slower = sum(sample.time_s for sample in after) / sum(sample.time_s for sample in before)
    print(write(profile), f"the second calibration took {slower:.2f} times as long as the first")
    ttft, e2e = compare(real, simulate(profile, requests, options))
    print(
        f"seed {options.seed}, {len(real)} requests, {options.replicas} engines: "
        f"mean absolute error of TTFT {ttft:.1%}, of the whole {e2e:.1%}"
    )
    return ttft <= TTFT_BAR and e2e <= E2E_BAR


if __name__ == "__main__":
    parser = option_parser(__doc__, format="azure", rps=4.0, minutes=5.0, replicas=1, seed=1)
    parser.add_argument("--trace", type=Path)
    sys.exit(0 if asyncio.run(campaign(parser.parse_args())) else 1)
