"""Output tokens per second and latencies of the server, under streams in a closed loop."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.context import Context, Item, Record
from benchmarks.gpu.meters.gpu_usage import GpuUsage
from benchmarks.gpu.serving.http_server import Server
from benchmarks.gpu.serving.model_server import ModelServers
from benchmarks.gpu.serving.stream_client import Load
from benchmarks.gpu.shapes import config_of

CLIENT = Path(__file__).with_name("serving") / "stream_client.py"


@dataclass(frozen=True, slots=True)
class Case:
    """A model under some streams. loop_s: of the closed loop. wave_s: of decode alone, about."""

    shape: str
    streams: int
    loop_s: float
    wave_s: float = 5.0
    shortest_prompt: int = 128
    longest_prompt: int = 1024
    output_tokens: int = 256

    @property
    def name(self) -> str:
        return f"{self.shape}, {self.streams} streams"


CASES = (
    Case("0.6b", 64, 15), Case("0.6b", 1, 5), Case("0.6b", 256, 8), Case("8b", 64, 15),
    Case("8b", 1, 5), Case("8b", 256, 8),
)  # fmt: skip
SMALL_CASES = (
    Case("0.6b", 4, 3, wave_s=2, shortest_prompt=16, longest_prompt=64, output_tokens=16),
)

SHORTEST_LOOP_S = 3.0  # where less time is left than the loop's
WARM_UP_TOKENS = 32
MAX_WAVE_TOKENS = 2500
# Limit on the time to the first tokens of all streams, after which the client is killed
RAMP_S = 60.0
# Figures of a load by the counter whose rate they are.
RATES = {
    "output_tokens_per_s": "vllm:generation_tokens_total",
    "prompt_tokens_per_s": "vllm:prompt_tokens_total",
    "steps_per_s": "vllm:iteration_tokens_total_count",
    "engine_busy": "penstock:busy_seconds_total",
}
FROM_WAVE = (
    "output_tokens_per_s", "steps_per_s", "engine_busy", "tpot_p50_s", "tpot_p95_s", "gap_p99_s",
    "server_cpu_cores", "client_cpu_cores",
)  # fmt: skip


def items(context: Context) -> Iterator[Item]:
    """An item for each model and number of streams. A model's server is started by its first item."""
    with closing(ModelServers(context)) as servers:
        for case in SMALL_CASES if context.is_small else CASES:
            yield Item(case.name, partial(measure, case, context, servers))


def measure(case: Case, context: Context, servers: ModelServers) -> Record:
    """Measure a closed loop, and then a wave of requests at once, in which nothing but decode runs.

    gpu_busy: share of time with a kernel running during the wave, as NVML samples it (coarse);
    gpu_busy_loop: during the loop. Figures of the wave start with `decode`.
    """
    server, start = servers.start(case.shape, SHORTEST_LOOP_S + case.wave_s)
    vocab_size = config_of(case.shape, is_small=context.is_small)["vocab_size"]

    def load(seconds: float | None, output_tokens: int, seed: int) -> Record:
        spread = case.shortest_prompt, case.longest_prompt
        return run_load(
            server,
            Load(server.port, case.streams, seconds, *spread, output_tokens, vocab_size, seed),
        )

    started_s = time.monotonic()
    load(None, WARM_UP_TOKENS, context.seed + 1)
    warm_up_s = time.monotonic() - started_s
    left_s = context.time_left_s() - case.wave_s
    loop = load(
        max(SHORTEST_LOOP_S, min(case.loop_s, left_s)), case.output_tokens, context.seed + 2
    )
    wave_tokens = int(case.wave_s / (loop["tpot_p50_s"] or case.wave_s))
    wave = load(None, max(2, min(MAX_WAVE_TOKENS, wave_tokens)), context.seed + 3)
    loop["gpu_busy_loop"] = loop.pop("gpu_busy")
    return {
        "shape": case.shape, "streams": case.streams, **judge(loop, wave), **loop,
        "gpu_busy": wave["gpu_busy"], **{f"decode_{name}": wave[name] for name in FROM_WAVE},
        "warm_up_s": round(warm_up_s, 3), **start,
    }  # fmt: skip


def judge(*loads: Mapping[str, Any]) -> Record:
    """`ok`: whether each answer came and had its length; if not, `difference` says what was wrong."""
    for figures in loads:
        if figures["failures"]:
            text = f"{figures['failures']} requests failed, the first: {figures['first_failure']}"
            return {"ok": False, "difference": text}
        if figures["short_answers"]:
            text = f"{figures['short_answers']} answers have another length than was asked for"
            return {"ok": False, "difference": text}
        if not figures["whole_answers"]:
            return {"ok": False, "difference": "no request was answered in the time"}
    return {"ok": True}


def run_load(server: Server, load: Load) -> Record:
    """Send a load from a process of its own. Returns its figures, and the server's in the measurement.

    Raises RuntimeError, with the end of the server's log, if the client has no result.
    """
    command = [sys.executable, "-P", str(CLIENT), json.dumps(asdict(load))]
    client = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert client.stdout is not None
    limit = threading.Timer(RAMP_S + (load.seconds or RAMP_S), client.kill)
    limit.start()
    try:
        lines = iter(client.stdout.readline, "")
        figures: Record = {}
        if next(lines, "") == "steady\n":
            with GpuUsage() as usage:
                rates = Rates(server)
                next(lines, "")
                figures = rates.measure()
            figures["gpu_busy"] = usage.share()
        result = next(lines, "")
    finally:
        limit.cancel()
        client.kill()
        client.wait()
    if not result:
        raise RuntimeError(f"the client had no result; the server's log: {server.log()}")
    figures |= json.loads(result)
    return figures


class Rates:
    """Rates of the server's counters and of its processor time, from the start of a measurement."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = self._read()

    def _read(self) -> tuple[float, dict[str, float], float]:
        counters = self._server.metrics()
        return time.monotonic(), counters, self._server.cpu_s()

    def measure(self) -> Record:
        """Rates until now, by the names of figures. Units a second, so that those of seconds are shares."""
        (then_s, before, cpu_s), (now_s, after, cpu_now_s) = self._before, self._read()
        seconds = now_s - then_s
        rates = {name: (after[key] - before[key]) / seconds for name, key in RATES.items()}
        return rates | {
            "measured_s": seconds,
            "server_cpu_cores": (cpu_now_s - cpu_s) / seconds,
        }
