"""Is greedy output equal to transformers', token for token, whatever the engine does meanwhile?

    python benchmarks/greedy_equality.py [--prompts 48] [--longest 1500] [--new-tokens 48]

Small random models of each family answer prompts of 1 to --longest tokens, in float32 on both
sides: with transformers' generate, one prompt at a time, and with the engine at concurrency 1 and
16, with chunks of at most 16 and 512 tokens, with the prefix cache on and off, and with so few
blocks that sequences are preempted. A difference is excused only where the reference's own first
two logits are less than 1e-4 apart. Exits with 1 when any difference is not excused.
"""

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler, SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.runner import Runner

BLOCK_SIZE = 16
VOCAB_SIZE = 512
EXCUSED_GAP = 1e-4


@dataclass(frozen=True, slots=True)
class Reference:
    """tokens: the reference's output; gaps: between its first two logits at each of them."""

    prompt: list[int]
    tokens: list[int]
    gaps: list[float]


@dataclass(frozen=True, slots=True)
class Setting:
    concurrency: int
    chunk_tokens: int
    prefix_caching: bool


@dataclass(frozen=True, slots=True)
class Result:
    family: str
    setting: Setting
    num_equal: int
    num_excused: int
    num_different: int
    preemptions: int
    prefix_hits_tokens: int
    duration_s: float


SETTINGS = tuple(
    Setting(*values) for values in itertools.product((1, 16), (16, 512), (False, True))
)


def make_qwen3(directory: Path) -> transformers.PreTrainedModel:
    config = transformers.Qwen3Config(
        vocab_size=VOCAB_SIZE, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32, max_position_embeddings=4096,
        tie_word_embeddings=True, initializer_range=0.15,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config)
    model.save_pretrained(directory)
    return model


def make_llama(directory: Path) -> transformers.PreTrainedModel:
    """Untied, with every bias, stretched positions, and its weights in several files."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=4096,
        attention_bias=True, mlp_bias=True, initializer_range=0.15,
        bos_token_id=None, eos_token_id=None,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 512,
        },
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(directory, max_shard_size="300KB")
    return model


FAMILIES: dict[str, Callable[[Path], transformers.PreTrainedModel]] = {
    "qwen3": make_qwen3,
    "llama": make_llama,
}


def make_prompts(num_prompts: int, longest: int, seed: int) -> list[list[int]]:
    """Lengths 1 to longest, spread evenly over their logarithm; every other one shares a prefix."""
    draw = random.Random(seed)
    document = [draw.randrange(VOCAB_SIZE) for _ in range(longest)]
    prompts = []
    for index in range(num_prompts):
        length = round(longest ** (index / max(1, num_prompts - 1)))
        num_shared = draw.randrange(length + 1) if index % 2 else 0
        own = [draw.randrange(VOCAB_SIZE) for _ in range(length - num_shared)]
        prompts.append(document[:num_shared] + own)
    draw.shuffle(prompts)
    return prompts


def reference(model: transformers.PreTrainedModel, prompt: list[int], new_tokens: int) -> Reference:
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=new_tokens,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    tokens = output.sequences[0, len(prompt) :].tolist()
    best = torch.cat(output.logits).topk(2).values
    return Reference(prompt, tokens, (best[:, 0] - best[:, 1]).tolist())


def generate(
    directory: Path, prompts: list[list[int]], new_tokens: int, setting: Setting
) -> tuple[list[list[int]], Scheduler]:
    """The engine's answers, with just more blocks than the longest prompt needs."""
    longest = max(map(len, prompts)) + new_tokens
    num_blocks = -(-longest // BLOCK_SIZE) + 4
    runner = Runner.load(
        directory, device="cpu", dtype="float32", num_blocks=num_blocks, block_size=BLOCK_SIZE,
        max_num_seqs=setting.concurrency, max_num_batched_tokens=setting.chunk_tokens,
        max_model_len=longest + 1,
    )  # fmt: skip
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=setting.concurrency,
            max_num_batched_tokens=setting.chunk_tokens,
            max_model_len=longest + 1,
            block_size=BLOCK_SIZE,
            num_blocks=num_blocks,
            prefix_caching=setting.prefix_caching,
            max_num_queued_seqs=len(prompts),
        )
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens)
    outputs: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    for index, prompt in enumerate(prompts):
        scheduler.add(Sequence(str(index), prompt, sampling, frozenset(), 0.0))
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs[event.request_id] += event.token_ids
    scheduler.check()
    return list(outputs.values()), scheduler


def compare(expected: Reference, tokens: list[int]) -> str:
    """ "equal", "excused" or "different"; after a first difference nothing can be compared."""
    for expected_token, token, gap in zip(expected.tokens, tokens, expected.gaps, strict=True):
        if token != expected_token:
            return "excused" if gap < EXCUSED_GAP else "different"
    return "equal"


def campaign(
    families: tuple[str, ...], settings: tuple[Setting, ...],
    num_prompts: int, longest: int, new_tokens: int, seed: int,
) -> Iterator[Result]:  # fmt: skip
    prompts = make_prompts(num_prompts, longest, seed)
    for family in families:
        with tempfile.TemporaryDirectory() as name:
            torch.manual_seed(seed)
            model = FAMILIES[family](Path(name)).eval()
            references = [reference(model, prompt, new_tokens) for prompt in prompts]
            for setting in settings:
                started = time.monotonic()
                outputs, scheduler = generate(Path(name), prompts, new_tokens, setting)
                verdicts = [compare(*pair) for pair in zip(references, outputs, strict=True)]
                stats = scheduler.stats()
                yield Result(
                    family, setting,
                    verdicts.count("equal"), verdicts.count("excused"), verdicts.count("different"),
                    stats.preemptions, stats.prefix_hits_tokens, time.monotonic() - started,
                )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--longest", type=int, default=1500)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    print(
        "family  concurrency  chunk  prefix cache  equal  excused  different  preemptions  hits  s"
    )
    num_different = 0
    for r in campaign(
        tuple(FAMILIES), SETTINGS, args.prompts, args.longest, args.new_tokens, args.seed
    ):
        s = r.setting
        num_different += r.num_different
        cache = "on" if s.prefix_caching else "off"
        print(
            f"{r.family:7} {s.concurrency:11} {s.chunk_tokens:6}  {cache:12} {r.num_equal:6}"
            f" {r.num_excused:8} {r.num_different:10} {r.preemptions:12}"
            f" {r.prefix_hits_tokens:5} {r.duration_s:4.1f}",
            flush=True,
        )
    sys.exit(1 if num_different else 0)


if __name__ == "__main__":
    main()
