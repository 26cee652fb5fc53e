"""Keys and values in eight bits."""

from pathlib import Path

import pytest
import torch
from benchmarks.engine.greedy_equality import BLOCK_SIZE, make_prompts
from tests.support.engine.kernel_references import dequantize_kv

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.core.step import BlockCopies, TokenLogprobs
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.kv_quant import quantize_kv
from penstock_engine.kernels.kv_write import kv_write_reference
from penstock_engine.layers.attention import QKV, AttentionShape, Span
from penstock_engine.layers.gathered_attention import GatheredAttention
from penstock_engine.layers.kv_cache import KVCache

KV_DTYPES = (torch.int8, torch.float8_e4m3fn)
SHAPE = (2, 12, 4, 3, 16)
# Relative to the largest number of a head, or to the number itself: half a step, and float32 rounding.
HALF_STEPS = {torch.int8: (0.5001 / 127, 0.0), torch.float8_e4m3fn: (2**-10 / 448, 1.0001 / 16)}
# The rounding of two tokens that are computed in another order may fall to the other side, and
# then a hundredth of one number changes; this much of a logprob it cannot.
TIE_LOGPROB = 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_what_is_gathered_is_what_the_definition_says(
    kv_dtype: torch.dtype, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    full = torch.randn(SHAPE) * torch.logspace(-6, 4, 16)
    numbers, scales = quantize_kv(full, kv_dtype)
    blocks = torch.tensor([3, 0, 11, 3])
    gathered = torch.empty(2, 4, 4, 3, 16, dtype=dtype)
    KVCache(numbers, scales).gather(blocks, gathered)
    expected = torch.stack([dequantize_kv(numbers[i], scales[i], dtype)[blocks] for i in (0, 1)])
    assert torch.equal(gathered, expected)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_each_number_is_within_half_a_step(kv_dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    cache = KVCache.zeros(SHAPE, kv_dtype, is_scaled=True, device="cpu")
    keys, values = torch.randn(2, 10, 3, 16) * torch.logspace(-6, 4, 10)[:, None, None]
    slots = torch.randperm(48)[:10]
    kv_write_reference(keys, values, cache.numbers, slots, cache.scales)
    everything = torch.empty(SHAPE)
    cache.gather(torch.arange(12), everything)
    of_largest, of_itself = HALF_STEPS[kv_dtype]
    for stored, given in zip(everything.flatten(1, 2), (keys, values), strict=True):
        allowed = of_largest * given.abs().amax(-1, keepdim=True) + of_itself * given.abs()
        assert ((stored[slots] - given).abs() <= allowed).all()
        stored[slots] = 0
        assert not stored.any()


@pytest.mark.parametrize(("kv_dtype", "bound"), [(torch.int8, 0.01), (torch.float8_e4m3fn, 0.06)])
def test_attention_is_hardly_changed(kv_dtype: torch.dtype, bound: float) -> None:
    """Error of a chunk and of a single token, relative to the attended values."""
    torch.manual_seed(0)
    for start, end in ((0, 40), (39, 40)):
        span = Span(start, end, tuple(range(12)))
        outputs = []
        for used in (torch.float32, kv_dtype):
            torch.manual_seed(1)
            k, v = torch.randn(2, 40, 3, 16)
            q = torch.randn(40, 6, 16)[start:end]
            cache = KVCache.zeros(SHAPE, used, is_scaled=used != torch.float32, device="cpu")
            kv_write_reference(k, v, cache.numbers, torch.arange(40), cache.scales)
            attend = GatheredAttention(
                [span], torch.arange(start, end), dtype=torch.float32,
                is_quantized=used != torch.float32,
            )  # fmt: skip
            outputs.append(attend(QKV(q, k[start:end], v[start:end]), cache, AttentionShape(0.25)))
        exact, rounded = outputs
        error = (rounded - exact).abs().max() / exact.abs().max()
        assert 0 < error <= bound


def run(
    directory: Path, kv_dtype: str, prompts: list[list[int]],
    *, num_blocks: int, max_num_seqs: int, chunk_tokens: int, prefix_caching: bool,
) -> tuple[list[list[TokenLogprobs]], SchedulerStats]:  # fmt: skip
    """The tokens of each prompt, and how sure the model was of them."""
    sizes = {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": chunk_tokens,
             "num_blocks": num_blocks, "block_size": BLOCK_SIZE, "max_model_len": 400}  # fmt: skip
    config = RunnerConfig(
        model_dir=directory, device="cpu", dtype="float32", kv_dtype=kv_dtype, **sizes
    )
    runner = Runner.load(config)
    scheduler = Scheduler(SchedulerConfig(prefix_caching=prefix_caching, **sizes))
    sampling = SamplingParams(temperature=0.0, max_tokens=24, logprobs=2)
    for index, prompt in enumerate(prompts):
        assert scheduler.add(Sequence(str(index), prompt, sampling, frozenset(), 0.0)) is None
    outputs: list[list[TokenLogprobs]] = [[] for _ in prompts]
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs[int(event.request_id)] += event.logprobs
    return outputs, scheduler.stats()


@pytest.mark.parametrize("kv_dtype", ["int8", "float8_e4m3fn"])
def test_chunks_hits_and_preemption_change_nothing(qwen3_dir: Path, kv_dtype: str) -> None:
    """A token attends to the cached values of others, however they were written."""
    prompts = make_prompts(16, 200, seed=4)
    alone, _ = run(
        qwen3_dir, kv_dtype, prompts,
        num_blocks=40, max_num_seqs=1, chunk_tokens=512, prefix_caching=False,
    )  # fmt: skip
    crowded, stats = run(
        qwen3_dir, kv_dtype, prompts,
        num_blocks=20, max_num_seqs=16, chunk_tokens=24, prefix_caching=True,
    )  # fmt: skip
    assert stats.preemptions > 0
    assert stats.prefix_hits_tokens > 0
    num_ties = 0
    for expected, actual in zip(alone, crowded, strict=True):
        for wanted, given in zip(expected, actual, strict=True):
            if wanted.token_id != given.token_id:
                (_, best), (_, second) = wanted.top
                assert best - second < TIE_LOGPROB
                num_ties += 1
                break
    print("ties:", num_ties)
    assert num_ties <= 1


@pytest.mark.parametrize("kv_dtype", ["int8", "float8_e4m3fn"])
def test_blocks_move_with_their_scales(qwen3_dir: Path, kv_dtype: str) -> None:
    config = RunnerConfig(
        model_dir=qwen3_dir, device="cpu", dtype="float32", num_blocks=6, block_size=4,
        max_num_seqs=2, max_num_batched_tokens=8, max_model_len=16, num_host_blocks=2,
        kv_dtype=kv_dtype,
    )  # fmt: skip
    model = PagedModel.load(config)
    before = []
    for cache in model._caches:
        numbers, scales = quantize_kv(torch.randn(cache.numbers.shape), cache.numbers.dtype)
        cache.numbers.copy_(numbers)
        assert cache.scales is not None
        cache.scales.copy_(scales)
        before.append((numbers.float(), scales))
    model.copy_blocks(BlockCopies(saves=((5, 1),), restores=((1, 0),), forks=((4, 2),)))
    for cache, parts in zip(model._caches, before, strict=True):
        for now, then in zip(cache.parts, parts, strict=True):
            assert torch.equal(now.float()[:, [0, 2]], then[:, [5, 4]])
            assert torch.equal(now.float()[:, [1, 3, 4, 5]], then[:, [1, 3, 4, 5]])
