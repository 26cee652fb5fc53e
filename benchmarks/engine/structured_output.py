"""Checks that answers match their schema and that hostile schemas harm no other request.

    python -m benchmarks.engine.structured_output [--schemas 320] [--seed 0]

It runs a real engine with a small random model at temperature 1. First come schemas of growing depth: every
finished answer must be valid. Then come hostile schemas, regexes and grammars, one after another: each must
be refused with 400, or accepted and matched, within 2 seconds, while another stream keeps at least 1 / 1.2 of
the speed that it has beside harmless ones. Exits with 1 otherwise.
"""

import json
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx
import jsonschema
from benchmarks.engine.hostile_structures import hostile
from benchmarks.engine.real_engine import engine
from benchmarks.engine.structured_cases import schemas
from benchmarks.options import option_parser

MAX_TOKENS = 1200
TIME_LIMIT_S = 2.0
SLOW_LIMIT = 1.2
# Consecutive requests of one kind before a change to the other kind.
TURN = 10
HARMLESS = {"json": {"type": "object", "properties": {"a": {"type": "integer"}}}}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on an answer. outcome: kept, unfinished, refused, or a description of the fault."""

    name: str
    outcome: str
    detail: str
    duration_s: float


def ask(client: httpx.Client, name: str, form: Json, max_tokens: int, seed: int) -> Verdict:
    body = {
        "prompt": "The engine", "structured_outputs": form, "max_tokens": max_tokens, "seed": seed,
    }  # fmt: skip
    started_s = time.monotonic()
    answer = client.post("/v1/completions", content=json.dumps(body))
    duration_s = time.monotonic() - started_s
    if answer.status_code == 400:
        return Verdict(name, "refused", answer.json()["error"]["message"], duration_s)
    if answer.status_code != 200:
        return Verdict(name, f"status {answer.status_code}", answer.text, duration_s)
    (choice,) = answer.json()["choices"]
    if choice["finish_reason"] != "stop":
        return Verdict(name, "unfinished", choice["text"], duration_s)
    wrong = fault(form, choice["text"])
    return Verdict(name, "not kept" if wrong else "kept", wrong or choice["text"], duration_s)


def fault(form: Json, text: str) -> str:
    """Fault of a finished answer; empty if it is valid or cannot be checked."""
    try:
        if "json" in form:
            # Exact decimals: the nearest float of a multiple may not be a multiple.
            schema = json.loads(json.dumps(form["json"]), parse_float=Decimal)
            value = json.loads(text, parse_float=Decimal)
            jsonschema.Draft202012Validator(schema).validate(value)
        elif "choice" in form and text not in form["choice"]:
            return f"{text!r} is not among the choices"
        elif "regex" in form and not re.fullmatch(form["regex"], text, re.DOTALL):
            return f"{text!r} does not match"
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{text!r}: {str(error)[:200]}"
    except (re.error, RecursionError, ArithmeticError):
        return ""  # the validator fails, not the engine
    return ""


def keep_schemas(client: httpx.Client, count: int, seed: int) -> list[Verdict]:
    def one(numbered: tuple[int, Json]) -> Verdict:
        index, schema = numbered
        return ask(client, json.dumps(schema), {"json": schema}, MAX_TOKENS, seed + index)

    with ThreadPoolExecutor(4) as executor:
        return list(executor.map(one, enumerate(schemas(count, seed))))


class Bystander(threading.Thread):
    """Client that streams long texts one after another and records the time of each token."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._is_over = threading.Event()
        self.gaps: list[tuple[float, float]] = []  # (time, seconds since the previous token)

    def run(self) -> None:
        body = {"prompt": "The gateway", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        with httpx.Client(base_url=self._address, timeout=60) as client:
            while not self._is_over.is_set():
                with client.stream("POST", "/v1/completions", json=body) as lines:
                    last_s = None
                    for line in lines.iter_lines():
                        now_s = time.monotonic()
                        if line and last_s is not None:
                            self.gaps.append((now_s, now_s - last_s))
                        last_s = now_s if line else last_s
                        if self._is_over.is_set():
                            break

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def during(self, spans: Sequence[tuple[float, float]]) -> list[float]:
        return [gap for at, gap in self.gaps if any(a <= at <= b for a, b in spans)]


def harm(
    client: httpx.Client, address: str, cases: Sequence[tuple[str, Json]]
) -> tuple[list[Verdict], float]:
    """Send the hostile cases. Returns verdicts, and the bystander's slow-down against harmless ones."""
    bystander = Bystander(address)
    bystander.start()
    verdicts: list[Verdict] = []
    spans: dict[str, list[tuple[float, float]]] = {"hostile": [], "harmless": []}
    for first in range(0, len(cases), TURN):
        turn = cases[first : first + TURN]
        started_s = time.monotonic()
        verdicts += [ask(client, name, form, 12, 1) for name, form in turn]
        spans["hostile"].append((started_s, time.monotonic()))
        until_s = time.monotonic() + spans["hostile"][-1][1] - started_s
        started_s = time.monotonic()
        while time.monotonic() < until_s:
            ask(client, "harmless", HARMLESS, 12, 1)
        spans["harmless"].append((started_s, time.monotonic()))
    bystander.stop()
    means = {kind: statistics.fmean(bystander.during(of_kind)) for kind, of_kind in spans.items()}
    print(
        f"  a token of another request: {means['harmless'] * 1e3:.2f} ms beside harmless requests, "
        f"{means['hostile'] * 1e3:.2f} ms beside hostile ones"
    )
    return verdicts, means["hostile"] / means["harmless"]


def report(title: str, verdicts: Sequence[Verdict]) -> None:
    counts = Counter(verdict.outcome for verdict in verdicts)
    slowest = max(verdicts, key=lambda verdict: verdict.duration_s)
    print(f"{title}: {len(verdicts)}, " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    print(f"  slowest {slowest.duration_s:.2f} s: {slowest.name[:100]}")
    for verdict in verdicts:
        if verdict.outcome not in ("kept", "refused", "unfinished"):
            print(f"  {verdict.outcome}: {verdict.name[:300]}: {verdict.detail[:300]}")


def main() -> None:
    args = option_parser(__doc__, schemas=320, seed=0).parse_args()
    flags = (
        "--dtype", "float32", "--num-gpu-blocks-override", "1000", "--max-model-len", "2048",
        "--max-num-seqs", "8",
    )  # fmt: skip
    with engine(*flags) as (address, _), httpx.Client(base_url=address, timeout=120) as client:
        kept = keep_schemas(client, args.schemas, args.seed)
        report("schemas", kept)
        borne, slowdown = harm(client, address, list(hostile()))
        report("hostile", borne)
    num_finished = sum(verdict.outcome == "kept" for verdict in kept)
    too_slow = [v for v in borne if v.outcome == "refused" and v.duration_s > TIME_LIMIT_S]
    print(
        f"{num_finished} of {len(kept)} schemas answered to the end, all valid; another request "
        f"slowed to {slowdown:.2f}; {len(too_slow)} refusals took more than {TIME_LIMIT_S} s"
    )
    outcomes = {verdict.outcome for verdict in [*kept, *borne]}
    is_good = outcomes <= {"kept", "unfinished", "refused"} and not too_slow
    is_good &= all(verdict.outcome != "refused" for verdict in kept) and slowdown <= SLOW_LIMIT
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
