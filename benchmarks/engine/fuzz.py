"""Fuzzes an engine with requests that /openapi.json allows and with malformed ones.

    python -m benchmarks.engine.fuzz [--cases 20000] [--seed 0]

It serves a small random model and sends it cases from Schemathesis and from malformed_requests.py. Exits with
1 if an answer is an unplanned 5xx or not as described, if the engine restarted, if a block or slot is in use
at the end, or if memory is above the level of the first tenth of the cases.
"""

import os
import sys
import time
from collections import Counter
from typing import Any

import requests
import schemathesis
from benchmarks.engine import malformed_requests
from benchmarks.engine.real_engine import engine
from benchmarks.options import option_parser
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import booleans
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.failures import FailureGroup

ANSWER_TIMEOUT_S = 60
# Allowance in bytes for memory that an allocator keeps.
SLACK_BYTES = 48 * 2**20
CHECK_NAMES = (
    "status_code_conformance", "content_type_conformance", "response_schema_conformance",
)  # fmt: skip
REFUSED_BY_DEFAULT = (
    "allowed_token_ids", "model", "priority", "prompt_logprobs", "stop_token_ids", "tools",
)  # fmt: skip
# Share of cases by route: routes without a body have few distinct cases.
SHARE_WITH_BODY, SHARE_WITHOUT = 10, 1


class Findings:
    """Counts of statuses, and the first example of each kind of fault."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.wrong: dict[str, str] = {}

    def add(self, kind: str, example: str) -> None:
        self.wrong.setdefault(kind, example)


def cases(url: str, num_cases: int, seed: int, findings: Findings) -> None:
    """Send cases, half of them valid by the description and half invalid."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    shares = [SHARE_WITH_BODY if op.body else SHARE_WITHOUT for op in operations]
    jobs = [
        (operation, mode, max(1, num_cases * share // (2 * sum(shares))))
        for operation, share in zip(operations, shares, strict=True)
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or operation.body or operation.query
    ]
    for job in jobs:
        _send(*job, url, seed, findings)


def _send(
    operation: Any, mode: GenerationMode, num_cases: int, url: str, seed: int, findings: Findings
) -> None:
    session = requests.Session()
    checks = CHECKS.get_by_names(CHECK_NAMES)

    @seeded(seed)
    @settings(
        max_examples=num_cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_tame=booleans())
    def send(case: Any, is_tame: bool) -> None:
        if is_tame and mode is GenerationMode.POSITIVE:
            _tame(case)
        route = f"{operation.method.upper()} {operation.path}"
        try:
            answer = case.call(base_url=url, session=session, timeout=ANSWER_TIMEOUT_S)
        except requests.RequestException as error:
            findings.add(f"{route}: {type(error).__name__}", case.as_curl_command())
            return
        findings.statuses[answer.status_code] += 1
        if answer.status_code >= 500 and answer.status_code not in malformed_requests.PLANNED:
            findings.add(f"{route}: {answer.status_code}", case.as_curl_command())
        try:
            case.validate_response(answer, checks=checks)
        except FailureGroup as group:
            for failure in group.exceptions:
                title = f"{route}: {getattr(failure, 'title', failure)}"
                findings.add(f"{title} ({answer.status_code})", case.as_curl_command())

    with session:
        send()


def _tame(case: Any) -> None:
    """Reduce a case to what an engine with default settings can serve."""
    if isinstance(case.body, dict):
        for name in REFUSED_BY_DEFAULT:
            case.body.pop(name, None)
        if "max_tokens" in case.body:
            case.body["max_tokens"] = 2


def leftovers(url: str) -> list[str]:
    """Gauges that are not zero although no request is open."""
    deadline_s = time.monotonic() + 10
    while True:
        lines = requests.get(f"{url}/metrics", timeout=30).text.splitlines()
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        left = [
            line
            for line in lines
            if line.startswith(tuple(f"vllm:{name}{{" for name in names))
            and float(line.rsplit(" ", 1)[1])
        ]
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(0.2)


def campaign(num_cases: int, seed: int) -> tuple[Counter[int], list[str], str]:
    """Run the campaign. Returns counts of statuses, faults, and a description of the memory."""
    findings = Findings()
    flags = (
        "--max-model-len", "128", "--num-gpu-blocks-override", "400", "--dtype", "float32",
        "--override-generation-config", '{"max_new_tokens": 4}',
    )  # fmt: skip
    with engine(*flags) as (url, process):
        host, port = url.removeprefix("http://").split(":")
        begun = process.create_time()
        cases(url, num_cases // 10, seed, findings)
        raw, wrong = malformed_requests.campaign(host, int(port), seed)
        level_bytes = process.memory_info().rss
        cases(url, num_cases - num_cases // 10, seed + 1, findings)
        raw_again, wrong_again = malformed_requests.campaign(host, int(port), seed + 1)
        wrong += wrong_again + [f"{kind}\n    {at}" for kind, at in findings.wrong.items()]
        wrong += [f"left over: {line}" for line in leftovers(url)]
        if not process.is_running() or process.create_time() != begun:
            wrong.append("the engine did not survive")
        end_bytes = process.memory_info().rss
        if end_bytes > level_bytes + SLACK_BYTES:
            wrong.append("memory has not returned to its level")
    memory = f"{level_bytes >> 20} MiB after a tenth, {end_bytes >> 20} MiB at the end"
    return findings.statuses + raw + raw_again, wrong, memory


def main() -> None:
    args = option_parser(__doc__, cases=20_000, seed=0).parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    statuses, wrong, memory = campaign(args.cases, args.seed)
    print(f"seed {args.seed}: {sum(statuses.values())} requests {dict(sorted(statuses.items()))}")
    print(memory, *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
