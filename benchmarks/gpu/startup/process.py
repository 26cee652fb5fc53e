"""Starts an engine on random weights as `serve` does, and prints its times and memory as JSON.

    argv: shape, device, seed, and the time.time() at which the process was started

The memory plan is the engine's own, made from a checkpoint of the same headers.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu.context import Context, Record

if TYPE_CHECKING:
    from penstock_engine.execution.runner import Runner
    from penstock_engine.execution.runner_config import RunnerConfig


class Phases:
    """Seconds of phases that follow each other."""

    def __init__(self, started_s: float) -> None:
        """started_s: by time.time()."""
        self.seconds: dict[str, float] = {}
        self._last_s = started_s

    def end(self, name: str) -> None:
        """End a phase, when the device has done its work."""
        import torch

        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        now_s = time.time()
        self.seconds[f"{name}_s"] = now_s - self._last_s
        self._last_s = now_s


def main() -> None:
    """Print the figures in the last line of the output."""
    shape, device, seed, started_s = sys.argv[1:]
    context = Context(device, int(seed), 0.0)
    print(json.dumps(start(shape, context, Phases(float(started_s)))), flush=True)


def start(shape: str, context: Context, phases: Phases) -> Record:
    """Start an engine, compute its first and its largest steps, and return the figures.

    Bytes of the device: rest is after the warm-up, working what the largest steps take in addition,
    counted what the plan counts. ok: whether the peak is within the memory that the plan may use.
    """
    import torch

    phases.end("import_torch")
    from benchmarks.gpu.meters.device_memory import MemoryMeter
    from benchmarks.gpu.startup.plan import make_plan
    from benchmarks.gpu.workloads.largest_steps import largest_steps
    from benchmarks.gpu.workloads.models import random_decoder, use_kernels_on_cpu

    from penstock_engine.execution.paged_model import PagedModel
    from penstock_engine.execution.runner import Runner
    from penstock_engine.execution.warm_up import warm_up_steps
    from penstock_engine.server.configs import runner_config

    phases.end("import_engine")
    if context.is_small:
        use_kernels_on_cpu()
    meter = MemoryMeter(context.device)
    phases.end("device")
    with tempfile.TemporaryDirectory() as folder:
        config, plan, counted = make_plan(Path(folder), shape, context)
    limits = runner_config(config, plan)
    phases.end("plan")
    decoder = random_decoder(plan.model, limits.max_model_len, context.device, context.seed)
    used = {"weights_bytes": meter.added()}
    phases.end("weights")
    model = PagedModel(decoder, limits)
    used["kv_cache_bytes"] = meter.added()
    phases.end("kv_cache")
    with torch.inference_mode():
        model.record_graphs()
    used["graph_bytes"] = meter.added()
    phases.end("graphs")
    runner = Runner(model)
    for step in warm_up_steps(limits, model.groupings):
        runner.run(step)
    phases.end("warm_up")
    first = first_steps(runner, limits)
    rest_bytes, rest_used_bytes = meter.allocated(), meter.used()
    phases.end("first_steps")
    meter.start_peak()
    for step in largest_steps(limits):
        runner.run(step)
    working_bytes = meter.peak() - rest_bytes
    phases.end("largest_steps")
    peak_bytes = rest_used_bytes + working_bytes
    total_bytes = counted["counted_total_bytes"]
    return {
        "ok": peak_bytes <= total_bytes,
        "difference": f"{peak_bytes} bytes at the peak, {total_bytes} counted",
        "shape": shape,
        **phases.seconds,
        **first,
        "num_recorded": 0 if model._graphs is None else len(model._graphs._recorded),
        "num_blocks": plan.num_blocks,
        "max_num_seqs": plan.max_num_seqs,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        **counted,
        **used,
        "rest_used_bytes": rest_used_bytes,
        "working_bytes": working_bytes,
        "peak_bytes": peak_bytes,
    }


def first_steps(runner: "Runner", limits: "RunnerConfig") -> dict[str, float]:
    """Seconds of a prompt and of a decode step, each twice: the first would be slower if something were
    left to compile."""
    from benchmarks.gpu.workloads.largest_steps import decode, prompt

    from penstock_engine.core.step import Step

    num_tokens = min(300, limits.max_num_batched_tokens, limits.max_model_len)
    steps = {
        "prompt": Step((prompt(num_tokens, limits),)),
        "decode": Step((decode("0", num_tokens, limits),)),
    }
    seconds = {}
    for name, step in steps.items():
        for which in ("first", "second"):
            started_s = time.perf_counter()
            runner.run(step)
            seconds[f"{which}_{name}_s"] = time.perf_counter() - started_s
    return seconds
