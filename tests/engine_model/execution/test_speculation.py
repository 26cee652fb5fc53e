"""Drafts change how fast tokens come, and nothing else."""

from functools import cache
from pathlib import Path

import pytest
import torch
import transformers

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig

NGRAM = SpeculationConfig(method="ngram", num_speculative_tokens=4, prompt_lookup_min=1)
SUFFIX = SpeculationConfig(method="suffix", num_speculative_tokens=4)


@pytest.fixture(scope="module")
def small_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another random model with the same vocabulary."""
    directory = tmp_path_factory.mktemp("small")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512,
        initializer_range=0.2, bos_token_id=0, eos_token_id=63,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        transformers.LlamaForCausalLM(config).save_pretrained(directory)
    return directory


def generate(
    model_dir: Path, speculation: SpeculationConfig | None, *, temperature: float,
    penalty: float = 0.1, num_blocks: int = 64, max_num_batched_tokens: int = 40,
) -> tuple[dict[str, list[int]], SchedulerStats]:  # fmt: skip
    sizes = {
        "num_blocks": num_blocks, "block_size": 8, "max_model_len": 128, "max_num_seqs": 4,
        "max_num_batched_tokens": max_num_batched_tokens,
    }  # fmt: skip
    draft_dir = (
        None if speculation is None or speculation.model is None else Path(speculation.model)
    )
    config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype="float32", draft_model_dir=draft_dir, **sizes
    )
    runner = Runner.load(config)
    scheduler = Scheduler(SchedulerConfig(**sizes, speculation=speculation))
    outputs: dict[str, list[int]] = {}
    for number in range(8):
        prompt = [(number * 7 + i * i) % 63 for i in range(1 + 9 * number)]
        sampling = SamplingParams(
            max_tokens=30, temperature=temperature, seed=number, ignore_eos=True,
            frequency_penalty=penalty * (number % 2),
        )  # fmt: skip
        scheduler.add(Sequence(str(number), prompt, sampling, frozenset({63}), 0.0))
        outputs[str(number)] = []
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs[event.request_id] += event.token_ids
        scheduler.check()
    return outputs, scheduler.stats()


@cache
def without_drafts(model_dir: Path, temperature: float) -> dict[str, list[int]]:
    """The same whatever the limits: tests of the model see to that."""
    return generate(model_dir, None, temperature=temperature)[0]


@pytest.mark.parametrize(
    ("limits", "temperature"),
    [({}, 0.0), ({}, 0.4), ({"num_blocks": 16}, 0.4), ({"max_num_batched_tokens": 7}, 0.0)],
    ids=str,
)
@pytest.mark.parametrize("method", ["ngram", "suffix", "draft_model", "itself"])
def test_the_same_tokens_come_with_and_without_drafts(
    qwen3_dir: Path, small_dir: Path, method: str, limits: dict[str, int], temperature: float
) -> None:
    """Greedy and drawn, with few blocks and with a tight budget."""
    speculation = {"ngram": NGRAM, "suffix": SUFFIX}.get(method) or SpeculationConfig(
        method="draft_model",
        num_speculative_tokens=3,
        model=str(qwen3_dir if method == "itself" else small_dir),
    )
    plain = without_drafts(qwen3_dir, temperature)
    drafted, stats = generate(qwen3_dir, speculation, temperature=temperature, **limits)
    assert drafted == plain
    assert stats.draft_tokens > 0
    if "num_blocks" in limits:
        assert stats.preemptions > 0


def test_a_model_that_guesses_for_itself_is_right(qwen3_dir: Path) -> None:
    """Greedy decoding accepts every draft if the model is its own draft model, so the draft model's
    cache is never behind."""
    itself = SpeculationConfig(method="draft_model", num_speculative_tokens=3, model=str(qwen3_dir))
    _, stats = generate(qwen3_dir, itself, temperature=0.0, penalty=0.0)
    assert sum(stats.accepted_by_position) == stats.draft_tokens > 150
