"""Program: the engines that get the requests with one first message; prints their numbers as JSON.

test_scorers.py runs it where a scorer prefers one engine for all requests with the same first message.
"""

import json
from collections import defaultdict

from penstock.core.routing.apis import CHAT
from penstock.core.routing.pick import Endpoint, choose_endpoint
from penstock.gateway.apis.request import parse
from penstock.sim.run import run
from penstock.sim.scenario import Scenario

ENGINES = [Endpoint(name, f"10.0.0.1:{n}", "r1") for n, name in enumerate("abc")]
LENGTHS = {"prompt": {"kind": "fixed", "tokens": 512}, "output": {"kind": "fixed", "tokens": 5}}


def chosen_by_the_gateway(system: str) -> int:
    """Number of engines that get the conversations with this system message."""
    chosen = set()
    for number in range(12):
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": f"Question {number}"},
        ]
        request = parse(json.dumps({"model": "chat", "messages": messages}).encode(), CHAT)
        load = {engine.pod: (7 * number + n) % 3 for n, engine in enumerate(ENGINES)}
        chosen.add(choose_endpoint(ENGINES, load, 0.0, request.attributes).pod)
    return len(chosen)


def chosen_in_the_simulator() -> list[int]:
    """Numbers of engines that get the requests with the same first block."""
    classes = [{**LENGTHS, "prefix_share": 0.5, "prefix_groups": 4}]
    service = {
        "profile": "llama-3.1-8b-h100", "ttft_s": 1.0, "tpot_s": 0.05, "startup_s": 20.0,
        "min_replicas": 3, "max_replicas": 3, "admission": "none",
        "workload": {"kind": "rate", "points": [(0, 4), (60, 4)], "mixes": [{"classes": classes}]},
    }  # fmt: skip
    scenario = {"name": "small", "duration_s": 60.0, "services": [service]}
    done = run(Scenario.model_validate(scenario), "hpa-queue", 1)
    pods = defaultdict(set)
    for request in done.services[0].gateway.requests:
        pods[request.prefix[0]].add(request.pod)
    return [len(each) for each in pods.values()]


rows = {
    "gateway": {system: chosen_by_the_gateway(system) for system in ("hotel", "bank")},
    "simulator": chosen_in_the_simulator(),
}
print(json.dumps(rows))
