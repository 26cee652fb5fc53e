"""Decode steps: their time against the time to read weights and KV cache, and where the rest goes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from benchmarks.gpu.compile_ahead import compile_for
from benchmarks.gpu.context import Context, Item, Record
from benchmarks.gpu.meters.device_memory import total_bytes
from benchmarks.gpu.meters.kernel_profile import profile_steps
from benchmarks.gpu.timing import seconds_back_to_back
from benchmarks.gpu.workloads.decode_load import DecodeLoad, run_steps
from benchmarks.gpu.workloads.model_launches import model_launches
from benchmarks.gpu.workloads.models import (
    BLOCK_SIZE,
    LoadedModel,
    ModelStore,
    make_model,
    parse_shape,
)

from penstock_engine.execution.graph_sizes import padded_size
from penstock_engine.models.parameters import model_parameters
from penstock_engine.sampling.request_state import RequestStates
from penstock_engine.sampling.sampler import sample

NUM_STEPS, NUM_WARM_UPS, NUM_PROFILED = 72, 8, 6
MEMORY_SHARE = 0.85  # of the device, for weights and KV cache


@dataclass(frozen=True, slots=True)
class Case:
    """A decode step: its shape, sequences, and the tokens of each in the KV cache."""

    shape: str
    num_seqs: int
    context_tokens: int

    @property
    def name(self) -> str:
        return f"{self.shape}, {self.num_seqs} x {self.context_tokens}"

    def load(self, num_steps: int, num_blocks: int) -> DecodeLoad:
        """Steps in which the sequences have context_tokens tokens on average."""
        first_tokens = self.context_tokens - num_steps // 2
        return DecodeLoad(self.num_seqs, first_tokens, num_steps, BLOCK_SIZE, num_blocks)

    @property
    def num_blocks(self) -> int:
        """Number of KV blocks that it needs."""
        return self.num_seqs * -(-(self.context_tokens + NUM_STEPS) // BLOCK_SIZE)


CASES = (
    Case("8b", 32, 1024), Case("8b", 128, 1024), Case("8b", 1, 1024),
    Case("8b", 32, 4096), Case("8b", 128, 4096), Case("8b", 1, 4096),
    Case("0.6b", 32, 1024), Case("0.6b", 128, 1024), Case("0.6b", 1, 1024),
    Case("moe-3b", 32, 1024), Case("moe-3b", 128, 1024), Case("moe-3b", 1, 1024),
)  # fmt: skip
SMALL_CASES = (Case("8b", 1, 20), Case("0.6b", 2, 20), Case("moe-3b", 2, 20))


def items(context: Context) -> Iterator[Item]:
    """For each shape, its measurements, then its kernels: the profiler may fail.

    The first item compiles the kernels of all shapes, also those of prompts.
    """
    cases = [case for case in CASES if _fits(case, context)]
    if context.is_small:
        cases = list(SMALL_CASES)
    store = ModelStore(partial(_make, cases=cases, context=context))
    yield Item("compile ahead", partial(compile_models, cases, context))
    for shape in dict.fromkeys(case.shape for case in cases):
        own = [case for case in cases if case.shape == shape]
        for case in own:
            yield Item(case.name, partial(measure, case, store, context))
        for case in own:
            if case.context_tokens < 4096:  # a longer context changes the attention alone
                yield Item(f"{case.name}, kernels", partial(profile, case, store, context))


def compile_models(cases: list[Case], context: Context) -> Record:
    """Compile the kernels of the models of all cases in parallel."""
    launches: list[Callable[[], object]] = []
    for shape in dict.fromkeys(case.shape for case in cases):
        sizes = tuple(case.num_seqs for case in cases if case.shape == shape)
        has_experts = parse_shape(shape, is_small=False).experts is not None
        launches += model_launches(shape, tuple({*sizes}) if has_experts else (min(sizes),))
    return compile_for(context, launches)


def measure(case: Case, store: ModelStore, context: Context) -> Record:
    """Figures of a decode step, in seconds. bound_s: time to read the weights and the KV cache.

    graph_s, logits_s, sampling_s: the replayed graph, the logits and the sampling, each launched again
    and again; where the host takes longer than the device, that is the host's time. gap_s: what the
    step takes beyond them. forward_s: the graph with its inputs sent to the device.
    """
    loaded = store.get(case.shape)
    num_warm_ups, num_steps = (1, 3) if context.is_small else (NUM_WARM_UPS, NUM_STEPS)
    load = case.load(num_steps, loaded.limits.num_blocks)
    times = run_steps(loaded.runner, load, num_warm_ups)
    parts = part_seconds(loaded, load, context.device)
    read_bytes = loaded.cost.estimate(load.sequences(num_steps // 2)).read_bytes
    faults = [] if times.is_complete else ["a sequence got no token"]
    if recorded_graph(loaded, case.num_seqs) is None:
        faults.append("the step is not recorded as a CUDA graph")
    figures: Record = {
        "ok": not faults,
        "difference": ", ".join(faults),
        "shape": case.shape,
        "num_seqs": case.num_seqs,
        "context_tokens": case.context_tokens,
        "step_s": times.step_s,
        "read_bytes": read_bytes,
        "tokens_per_s": case.num_seqs / times.step_s,
        **parts,
        "gap_s": times.step_s - parts["graph_s"] - parts["logits_s"] - parts["sampling_s"],
        "launch_s": times.launch_s,
        "launch_cpu_s": times.launch_cpu_s,
    }
    if bandwidth := context.machine.get("copy_bytes_per_s"):
        bound_s = read_bytes / bandwidth
        figures |= {"bound_s": bound_s, "ratio_to_bound": times.step_s / bound_s}
    return figures


@torch.inference_mode()
def part_seconds(loaded: LoadedModel, load: DecodeLoad, device: str) -> dict[str, float]:
    """Seconds of the parts of the last step of a load that has run."""
    model, sequences = loaded.model, load.sequences(load.num_steps - 1)
    forward = partial(model.forward, sequences)
    replay = recorded_graph(loaded, len(sequences))
    hidden = forward().clone()
    logits = model.logits(hidden)
    states = RequestStates()
    return {
        "graph_s": seconds_back_to_back(replay or forward, device),
        "forward_s": seconds_back_to_back(forward, device),
        "logits_s": seconds_back_to_back(partial(model.logits, hidden), device),
        "sampling_s": seconds_back_to_back(partial(sample, logits, sequences, states), device),
    }


def recorded_graph(loaded: LoadedModel, num_seqs: int) -> Callable[[], torch.Tensor] | None:
    """The replay of a decode step; None if it is not recorded."""
    graphs, size = loaded.model._graphs, padded_size(num_seqs)
    return None if graphs is None or size is None else graphs._recorded.get(size)


def profile(case: Case, store: ModelStore, context: Context) -> Record:
    """The kernels of a decode step: their number, times, and the largest ones."""
    loaded = store.get(case.shape)
    num_steps = 2 if context.is_small else NUM_PROFILED

    def work() -> None:
        load = case.load(num_steps, loaded.limits.num_blocks)
        run_steps(loaded.runner, load, num_warm_ups=1)

    if not context.is_small:
        work()  # so that nothing is compiled or recorded while it is profiled
    return profile_steps(work, context.device, num_steps)


def _make(shape: str, cases: list[Case], context: Context) -> LoadedModel:
    own = [case for case in cases if case.shape == shape]
    max_num_seqs = max(case.num_seqs for case in own)
    max_model_len = parse_shape(shape, is_small=context.is_small).max_model_len
    return make_model(
        shape, context, num_blocks=max(case.num_blocks for case in own),
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max(max_num_seqs, 16),
        max_model_len=256 if context.is_small else max_model_len,
    )  # fmt: skip


def _fits(case: Case, context: Context) -> bool:
    """Whether weights and KV cache leave some of the device's memory."""
    config = parse_shape(case.shape, is_small=False)
    numbers = sum(torch.Size(shape).numel() for _, shape in model_parameters(config))
    numbers += case.num_blocks * sum(
        x.attention.kv.block_bytes(BLOCK_SIZE, 1) for x in config.layers
    )
    return 2 * numbers <= MEMORY_SHARE * total_bytes(context)
