"""Is greedy output equal to transformers', token for token, whatever the engine does meanwhile?

    python benchmarks/greedy_equality.py [--prompts 50] [--longest 1500] [--new-tokens 48]
                                         [--families llama,qwen3] [--dtypes float32,bfloat16]

Small random models of each family answer prompts of 1 to --longest tokens: with transformers'
generate, one prompt at a time, and with the engine at concurrency 1 and 16, with chunks of at most
16 and 256 tokens, with the prefix cache on and off, and with so few blocks that sequences are
preempted. Both compute in the same number type. In float32 a difference is excused only where the
reference's own first two logits are less than 1e-4 apart; in bfloat16 where the reference rates
the engine's token less than 2 units in the last place of its first logit lower. Exits with 1 when
any difference is not excused.
"""

import argparse
import itertools
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler, SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.runner import Runner

BLOCK_SIZE = 16
VOCAB_SIZE = 512
EXCUSED_GAP = 1e-4
EXCUSED_ULPS = 2


@dataclass(frozen=True, slots=True)
class Reference:
    """tokens: the reference's output; logits: [tokens, vocabulary], of which each is the first."""

    prompt: list[int]
    tokens: list[int]
    logits: torch.Tensor


@dataclass(frozen=True, slots=True)
class Setting:
    concurrency: int
    chunk_tokens: int
    prefix_caching: bool


@dataclass(frozen=True, slots=True)
class Result:
    family: str
    dtype: str
    setting: Setting
    num_equal: int
    num_excused: int
    num_different: int
    preemptions: int
    prefix_hits_tokens: int
    duration_s: float


SETTINGS = tuple(
    Setting(*values) for values in itertools.product((1, 16), (16, 256), (False, True))
)


@dataclass(frozen=True, slots=True)
class Family:
    """A small random model. config: what makes it a tell-tale of its family.

    shortest: prompts have at least so many tokens. shard: largest file of its checkpoint.
    """

    name: str
    config: dict[str, Any]
    shortest: int = 1
    shard: str = "1GB"

    def make(self, directory: Path) -> transformers.PreTrainedModel:
        config_name = "Gemma3Text" if self.name == "Gemma3" else self.name
        config = getattr(transformers, f"{config_name}Config")(
            **{
                "vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 160,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 4096, "initializer_range": 0.15,
                "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, **self.config,
            }
        )  # fmt: skip
        model = getattr(transformers, f"{self.name}ForCausalLM")(config)
        randomise(model)
        model.save_pretrained(directory, max_shard_size=self.shard)
        return model


def randomise(model: transformers.PreTrainedModel) -> None:
    """Biases are born as 0 and norms as 1, and would not show whether they are used."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
        elif "norm" in name:
            parameter.data += torch.randn_like(parameter) * 0.2


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 512,
}  # fmt: skip
PHI3 = {
    "partial_rotary_factor": 0.75, "hidden_size": 128,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "short_factor": [1 + i / 20 for i in range(12)], "long_factor": [2 + i for i in range(12)],
    },
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llama": Family(
        "Llama",
        {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True,
         "rope_parameters": LLAMA3},
        shard="300KB",
    ),
    "qwen2": Family(
        "Qwen2", {"use_sliding_window": True, "sliding_window": 50, "max_window_layers": 1}
    ),
    "qwen3": Family(
        "Qwen3", {"num_attention_heads": 6, "head_dim": 32, "tie_word_embeddings": True}
    ),
    "mistral": Family("Mistral", {"sliding_window": 40, "head_dim": 32}),
    "gemma": Family("Gemma", {"num_key_value_heads": 1, "head_dim": 32}),
    "gemma2": Family(
        "Gemma2",
        {"head_dim": 32, "sliding_window": 40, "query_pre_attn_scalar": 20,
         "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    ),
    "gemma3": Family(
        "Gemma3",
        {"head_dim": 32, "sliding_window": 40, "query_pre_attn_scalar": 20,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "rope_parameters": {
             "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
         }},
    ),
    "phi": Family("Phi", {"num_key_value_heads": 4}),
    "phi3": Family("Phi3", {"sliding_window": 60, "original_max_position_embeddings": 2048} | PHI3),
    # transformers rotates a text as a long one from token 17 on, the engine from its first.
    "phi3-long": Family("Phi3", {"original_max_position_embeddings": 16} | PHI3, shortest=17),
    "mixtral": Family("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen3-moe": Family(
        "Qwen3Moe",
        {"num_local_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
         "mlp_only_layers": [1]},
    ),
}  # fmt: skip


def make_prompts(
    num_prompts: int, longest: int, seed: int, *, shortest: int = 1
) -> list[list[int]]:
    """Lengths shortest to longest, spread evenly over their logarithm; every other one shares a prefix."""
    draw = random.Random(seed)
    document = [draw.randrange(VOCAB_SIZE) for _ in range(longest)]
    prompts = []
    for index in range(num_prompts):
        length = round(shortest * (longest / shortest) ** (index / max(1, num_prompts - 1)))
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
    return Reference(prompt, tokens, torch.cat(output.logits).float())


def generate(
    directory: Path,
    prompts: list[list[int]],
    new_tokens: int,
    setting: Setting,
    dtype: str = "float32",
) -> tuple[list[list[int]], Scheduler]:
    """The engine's answers, with just more blocks than the longest prompt needs."""
    longest = max(map(len, prompts)) + new_tokens
    num_blocks = -(-longest // BLOCK_SIZE) + 4
    runner = Runner.load(
        directory, device="cpu", dtype=dtype, num_blocks=num_blocks, block_size=BLOCK_SIZE,
        max_num_seqs=setting.concurrency, max_num_batched_tokens=setting.chunk_tokens,
        max_model_len=longest + 1, seed=0,
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
            if event.token_id is not None:
                outputs[event.request_id].append(event.token_id)
    scheduler.check()
    return list(outputs.values()), scheduler


def compare(expected: Reference, tokens: list[int], dtype: str) -> str:
    """ "equal", "excused" or "different"; after a first difference nothing can be compared."""
    for wanted, token, logits in zip(expected.tokens, tokens, expected.logits, strict=True):
        if token != wanted:
            return "excused" if is_excused(logits, token, dtype) else "different"
    return "equal"


def is_excused(logits: torch.Tensor, token: int, dtype: str) -> bool:
    first, second = logits.topk(2).values.tolist()
    if dtype == "float32":
        return first - second < EXCUSED_GAP
    ulp = 2.0 ** (math.frexp(first)[1] - 8)  # bfloat16 has 8 bits of precision
    return first - logits[token].item() < EXCUSED_ULPS * ulp


def campaign(
    families: tuple[str, ...], settings: tuple[Setting, ...], *,
    num_prompts: int, longest: int, new_tokens: int, seed: int, dtype: str = "float32",
) -> Iterator[Result]:  # fmt: skip
    for family in families:
        shortest = FAMILIES[family].shortest
        prompts = make_prompts(num_prompts, longest, seed, shortest=shortest)
        with tempfile.TemporaryDirectory() as name:
            torch.manual_seed(seed)
            model = FAMILIES[family].make(Path(name)).eval().to(getattr(torch, dtype))
            references = [reference(model, prompt, new_tokens) for prompt in prompts]
            for setting in settings:
                started = time.monotonic()
                outputs, scheduler = generate(Path(name), prompts, new_tokens, setting, dtype)
                verdicts = [
                    compare(expected, tokens, dtype)
                    for expected, tokens in zip(references, outputs, strict=True)
                ]
                stats = scheduler.stats()
                yield Result(
                    family, dtype, setting,
                    verdicts.count("equal"), verdicts.count("excused"), verdicts.count("different"),
                    stats.preemptions, stats.prefix_hits_tokens, time.monotonic() - started,
                )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--longest", type=int, default=1500)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    print("family     dtype     concurrency  chunk  prefix cache  equal  excused  different"
          "  preemptions   hits    s")  # fmt: skip
    num_different = 0
    for dtype in args.dtypes.split(","):
        for r in campaign(
            tuple(args.families.split(",")), SETTINGS, num_prompts=args.prompts,
            longest=args.longest, new_tokens=args.new_tokens, seed=args.seed, dtype=dtype,
        ):  # fmt: skip
            s = r.setting
            num_different += r.num_different
            print(
                f"{r.family:10} {r.dtype:9} {s.concurrency:11} {s.chunk_tokens:6}"
                f"  {'on' if s.prefix_caching else 'off':12} {r.num_equal:6} {r.num_excused:8}"
                f" {r.num_different:10} {r.preemptions:12} {r.prefix_hits_tokens:6}"
                f" {r.duration_s:4.1f}",
                flush=True,
            )
    sys.exit(1 if num_different else 0)


if __name__ == "__main__":
    main()
