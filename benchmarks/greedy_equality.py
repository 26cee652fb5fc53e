"""Is greedy output equal to transformers', token for token, whatever the engine does meanwhile?

    python benchmarks/greedy_equality.py [--prompts 50] [--longest 600] [--new-tokens 32]
                                         [--families llama,qwen3] [--dtypes float32,bfloat16]
                                         [--tensor-parallel 2] [--pipeline-parallel 2]
                                         [--expert-parallel]

Small random models of each family answer prompts of 1 to --longest tokens: with transformers'
generate, one prompt at a time, and with the engine at concurrency 1 and 16, with chunks of at most
16 and 256 tokens, with the prefix cache and n-gram speculation on and off, and with so few blocks
that sequences are preempted; if asked for, as several processes that share the model. Where two
outputs part, the gap is how much the reference prefers its own token to the engine's:

    tie        float32: the gap is below 1e-4. bfloat16: below 2 units in the last place
    noise      bfloat16: below twice the reference's own error, the largest distance of a logit
               from what it computes in float32 with the same weights; with experts that is what
               a router makes of a near tie
    different  anything else; there must be none, or the exit status is 1
"""

import argparse
import itertools
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler, SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation import SpeculationConfig
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import ONE_RANK, Layout
from penstock_engine.runner import Runner
from penstock_engine.runner_config import RunnerConfig

BLOCK_SIZE = 16
VOCAB_SIZE = 512
TIE_GAP = 1e-4
TIE_ULPS = 2
VERDICTS = ("equal", "tie", "noise", "different")


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
    speculates: bool


@dataclass(frozen=True, slots=True)
class Result:
    family: str
    dtype: str
    setting: Setting
    verdicts: Counter[str]
    noise: float
    stats: SchedulerStats
    duration_s: float


# Alone, and in a crowd that preempts each other.
SETTINGS = (
    Setting(1, 256, False, False),
    Setting(1, 256, True, True),
    Setting(1, 16, True, False),
    *(
        Setting(16, *values)
        for values in itertools.product((16, 256), (False, True), (False, True))
    ),
)
# The mechanics are the same in every number type; here the question is how the numbers are rounded.
BFLOAT16_SETTINGS = (Setting(1, 256, False, False), Setting(16, 16, True, True))
# One token is enough to look up: random prompts seldom repeat two.
NGRAM = SpeculationConfig(
    method="ngram", num_speculative_tokens=4, prompt_lookup_min=1, prompt_lookup_max=3
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

    def make(self, directory: Path) -> None:
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

    def load(self, directory: Path, dtype: str) -> transformers.PreTrainedModel:
        architecture = getattr(transformers, f"{self.name}ForCausalLM")
        model: transformers.PreTrainedModel = architecture.from_pretrained(directory, dtype=dtype)
        return model.eval()


def randomise(model: transformers.PreTrainedModel) -> None:
    """Biases are born as 0 and norms as 1, and would not show whether they are used.

    An embedding that is also the head, and is scaled up as Gemma's is, would repeat its input. And
    a router that hardly prefers one expert to another would make every rounding a change of mind.
    """
    if model.config.tie_word_embeddings:
        model.get_input_embeddings().weight.data *= 0.25
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
        elif "norm" in name:
            parameter.data += torch.randn_like(parameter) * 0.2
        elif name.endswith("mlp.gate.weight"):
            parameter.data *= 4


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
         "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0},
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


def room(prompts: list[list[int]], new_tokens: int) -> dict[str, int]:
    """Just more blocks than the longest prompt needs."""
    longest = max(map(len, prompts)) + new_tokens
    num_blocks = -(-longest // BLOCK_SIZE) + 4
    return {"num_blocks": num_blocks, "block_size": BLOCK_SIZE, "max_model_len": longest + 1}


def generate(
    directory: Path,
    prompts: list[list[int]],
    new_tokens: int,
    setting: Setting,
    dtype: str = "float32",
    **options: Any,
) -> tuple[list[list[int]], Scheduler]:
    """The engine's answers. options: more of RunnerConfig."""
    runner = load(directory, prompts, new_tokens, (setting,), dtype, **options)
    with closing(runner):
        window_tokens = ModelConfig.load(directory).window_tokens
        return answer(runner, prompts, new_tokens, setting, window_tokens)


def load(
    directory: Path,
    prompts: list[list[int]],
    new_tokens: int,
    settings: tuple[Setting, ...],
    dtype: str,
    **options: Any,
) -> Runner:
    config = RunnerConfig(
        model_dir=directory, device="cpu", dtype=dtype,
        max_num_seqs=max(s.concurrency for s in settings),
        max_num_batched_tokens=max(s.chunk_tokens for s in settings),
        **room(prompts, new_tokens), **options,
    )  # fmt: skip
    return Runner.load(config)


def answer(
    runner: Runner, prompts: list[list[int]], new_tokens: int, setting: Setting,
    window_tokens: int | None,
) -> tuple[list[list[int]], Scheduler]:  # fmt: skip
    """One answer to each prompt. runner: with room for them. window_tokens: of its model."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=setting.concurrency,
            max_num_batched_tokens=setting.chunk_tokens,
            prefix_caching=setting.prefix_caching,
            max_num_queued_seqs=len(prompts),
            speculation=NGRAM if setting.speculates else None,
            window_tokens=window_tokens,
            **room(prompts, new_tokens),
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


def compare(expected: Reference, tokens: list[int], dtype: str, noise: float) -> str:
    """One of VERDICTS; after a first difference nothing can be compared."""
    for wanted, token, logits in zip(expected.tokens, tokens, expected.logits, strict=True):
        if token != wanted:
            gap = (logits[wanted] - logits[token]).item()
            if gap < (TIE_GAP if dtype == "float32" else TIE_ULPS * ulp(logits[wanted].item())):
                return "tie"
            return "noise" if gap < 2 * noise else "different"
    return "equal"


def ulp(number: float) -> float:
    """Unit in the last place of a bfloat16, which has 8 bits of precision."""
    return 2.0 ** (math.frexp(number)[1] - 8)


@torch.inference_mode()
def own_noise(model: transformers.PreTrainedModel, references: list[Reference]) -> float:
    """How far a bfloat16 reference is from itself in float32; model: what gave the references."""
    exact = model.float()
    noise = 0.0
    for r in references:
        ids = torch.tensor([r.prompt + r.tokens[:-1]])
        error = exact(ids).logits[0, len(r.prompt) - 1 :] - r.logits
        noise = max(noise, error.abs().max().item())
    return noise


def campaign(
    families: tuple[str, ...], settings: tuple[Setting, ...], *,
    num_prompts: int, longest: int, new_tokens: int, seed: int, dtype: str = "float32",
    layout: Layout = ONE_RANK,
) -> Iterator[Result]:  # fmt: skip
    for name in families:
        family = FAMILIES[name]
        prompts = make_prompts(num_prompts, longest, seed, shortest=family.shortest)
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            torch.manual_seed(seed)
            family.make(directory)
            model = family.load(directory, dtype)
            references = [reference(model, prompt, new_tokens) for prompt in prompts]
            noise = 0.0 if dtype == "float32" else own_noise(model, references)
            window_tokens = ModelConfig.load(directory).window_tokens
            runner = load(directory, prompts, new_tokens, settings, dtype, layout=layout)
            with closing(runner):
                for setting in settings:
                    started = time.monotonic()
                    outputs, scheduler = answer(runner, prompts, new_tokens, setting, window_tokens)
                    verdicts = Counter(
                        compare(expected, tokens, dtype, noise)
                        for expected, tokens in zip(references, outputs, strict=True)
                    )
                    yield Result(
                        name, dtype, setting, verdicts, noise, scheduler.stats(),
                        time.monotonic() - started,
                    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--longest", type=int, default=600)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--pipeline-parallel", type=int, default=1)
    parser.add_argument("--expert-parallel", action="store_true")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    print("family     dtype     concurrency  chunk  cache  ngram", *VERDICTS,
          "preemptions    hits  drafts   noise     s", sep="  ")  # fmt: skip
    total: Counter[str] = Counter()
    for dtype in args.dtypes.split(","):
        for r in campaign(
            tuple(args.families.split(",")),
            SETTINGS if dtype == "float32" else BFLOAT16_SETTINGS,
            num_prompts=args.prompts, longest=args.longest, new_tokens=args.new_tokens,
            seed=args.seed, dtype=dtype,
            layout=Layout(args.tensor_parallel, args.pipeline_parallel, args.expert_parallel),
        ):  # fmt: skip
            s = r.setting
            total += r.verdicts
            on_off = [("off", "on")[flag] for flag in (s.prefix_caching, s.speculates)]
            print(
                f"{r.family:10} {r.dtype:9} {s.concurrency:11} {s.chunk_tokens:6}",
                *(f"{word:>5}" for word in on_off),
                *(f"{r.verdicts[verdict]:{len(verdict)}}" for verdict in VERDICTS),
                f"{r.stats.preemptions:11} {r.stats.prefix_hits_tokens:7}"
                f" {r.stats.draft_tokens:7} {r.noise:7.4f} {r.duration_s:5.1f}",
                sep="  ",
                flush=True,
            )
    print("in all:", ", ".join(f"{total[verdict]} {verdict}" for verdict in VERDICTS))
    sys.exit(1 if total["different"] else 0)


if __name__ == "__main__":
    main()
