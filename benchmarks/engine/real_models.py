"""Compares the engine with transformers on real weights, and measures the loss of its formats.

    python -m benchmarks.engine.real_models MODEL [--reference FOLDER] [--prompts 64] [--new-tokens 32]
                                     [--text-tokens 8192]

MODEL: a checkpoint folder or a GGUF file. --reference: a folder with the same weights for
transformers, as tests/real_models makes of a GGUF file; by default MODEL. The text is the Python
language reference, which every interpreter ships for help().

1. transformers answers short prompts greedily in float32, many at once. The engine answers them in
   each configuration. Verdicts are those of verdicts.py. The answers of int8 and int4 weights are
   compared with transformers' with the same weights, dequantized. All answers have --new-tokens
   tokens: end tokens are ignored.
2. Answers in bfloat16, int8 and int4: the position of the first token that differs from float32.
3. Perplexity of each weight format and KV cache format, of the engine's prompt_logprobs.

The exit status is 1 when a verdict is "different".
"""

import math
import statistics
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import transformers
from benchmarks.engine.greedy_equality import BLOCK_SIZE, NGRAM, room
from benchmarks.options import option_parser
from tests.support.engine.verdicts import Reference, compare, first_difference

from penstock_engine.checkpoints.weights import open_checkpoints
from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.memory.number_types import KV_DTYPES
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import Layout
from penstock_engine.quantization.rounding import Quantization
from penstock_engine.text.tokens import Tokenizer

# Two prompts of each passage share their first block. With few lengths transformers can batch many prompts.
PROMPT_TOKENS = (BLOCK_SIZE + 1, 24)
WINDOW_TOKENS = 512
NUM_SEQS = 64
VERDICTS = ("equal", "tie", "different")
ROUNDED: tuple[Quantization, ...] = ("int8", "int4")
KV_FORMATS = ("int8", "fp8")


def events(
    place: Path, prompts: list[list[int]], sampling: SamplingParams, *, num_seqs: int = 8,
    chunk_tokens: int = 512, num_blocks: int = 1024, prefix_caching: bool = False,
    speculation: SpeculationConfig | None = None, dtype: str = "float32", **options: Any,
) -> tuple[list[list[TokenEvent]], SchedulerStats]:  # fmt: skip
    """Events of the engine for each prompt, and its counters. options: further fields of RunnerConfig."""
    model = ModelConfig.load(place)
    sizes = {
        **room(prompts, sampling.max_tokens), "num_blocks": num_blocks, "max_num_seqs": num_seqs,
        "max_num_batched_tokens": chunk_tokens,
    }  # fmt: skip
    scheduler = Scheduler(
        SchedulerConfig(
            **sizes, prefix_caching=prefix_caching, speculation=speculation,
            window_tokens=model.window_tokens,
        )
    )  # fmt: skip
    ends: frozenset[int] = frozenset() if sampling.ignore_eos else model.eos_token_ids
    told: dict[str, list[TokenEvent]] = {str(index): [] for index in range(len(prompts))}
    config = RunnerConfig(model_dir=place, device="cpu", dtype=dtype, **sizes, **options)
    with closing(Runner.load(config)) as runner:
        for index, prompt in enumerate(prompts):
            scheduler.add(Sequence(str(index), prompt, sampling, ends, 0.0))
        while (step := scheduler.schedule(0.0)) is not None:
            for event in scheduler.complete(step, runner.run(step), 0.0):
                told[event.request_id].append(event)
    scheduler.check()
    return list(told.values()), scheduler.stats()


def generate(
    place: Path, prompts: list[list[int]], new_tokens: int, *, ignore_eos: bool = False,
    **options: Any,
) -> tuple[list[list[int]], SchedulerStats]:  # fmt: skip
    """Greedy answers of the engine. options: as in `events`."""
    sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=ignore_eos)
    told, stats = events(place, prompts, sampling, **options)
    return [[token for event in own for token in event.token_ids] for own in told], stats


def round_weights(model: transformers.PreTrainedModel, place: Path, kind: Quantization) -> None:
    """Replace weights by the engine's rounded weights, dequantized."""
    scheme = ModelConfig.load(place).scheme(kind, "float32")
    assert scheme is not None
    with open_checkpoints(place) as (checkpoint, _):
        for name, parameter in model.named_parameters():
            rounded = scheme.read(checkpoint, name.removesuffix(".weight"))
            if rounded is not None:
                parameter.data.copy_(rounded.dequantized())


def load(folder: Path) -> transformers.PreTrainedModel:
    model: transformers.PreTrainedModel
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    return model.eval()


def references(
    model: transformers.PreTrainedModel, prompts: list[list[int]], new_tokens: int
) -> list[Reference]:
    """Greedy answers of transformers, batched by prompt length, so that nothing is padded."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        groups[len(prompt)].append(index)
    answers: dict[int, Reference] = {}
    for length, indices in groups.items():
        ids = torch.tensor([prompts[index] for index in indices])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        for row, index in enumerate(indices):
            tokens = output.sequences[row, length:].tolist()
            logits = torch.stack([step[row] for step in output.logits])
            answers[index] = Reference(prompts[index], tokens, logits, [])
    return [answers[index] for index in range(len(prompts))]


class Text:
    """Python language reference in a model's tokens."""

    def __init__(self, place: Path) -> None:
        tokenizer = Tokenizer(place)
        self._start = tokenizer.encode("")
        text = "\n\n".join(topics[name] for name in sorted(topics))
        self._tokens = tokenizer.encode(text)[len(self._start) :]

    def slices(self, number: int, length: int) -> list[list[int]]:
        """Evenly spaced slices, each after the beginning-of-text token if the model has one."""
        stride = (len(self._tokens) - length) // number
        inner = length - len(self._start)
        return [self._start + self._tokens[i * stride :][:inner] for i in range(number)]

    def prompts(self, number: int) -> list[list[int]]:
        """Short prompts, then long prompts of the same passages."""
        passages = self.slices(number // len(PROMPT_TOKENS), max(PROMPT_TOKENS))
        return [passage[:length] for length in PROMPT_TOKENS for passage in passages]


def configurations(place: Path) -> dict[str, dict[str, Any]]:
    """Options of `generate` by the name of the configuration, all with float32 weights."""
    num_ranks = 3 if ModelConfig.load(place).layers[0].attention.num_heads % 2 else 2
    draft = SpeculationConfig(method="draft_model", num_speculative_tokens=3, model=str(place))
    prompt_blocks = -(-max(PROMPT_TOKENS) // BLOCK_SIZE)
    return {
        "default": {"num_seqs": NUM_SEQS},
        "prefix hits": {"num_seqs": 28, "prefix_caching": True},
        "preemption": {"num_seqs": NUM_SEQS // 2, "num_blocks": NUM_SEQS // 2 * prompt_blocks + 2},
        "chunks of 32": {"num_seqs": 28, "chunk_tokens": 32},
        "n-gram": {"num_seqs": NUM_SEQS, "speculation": NGRAM},
        "draft model": {"num_seqs": NUM_SEQS, "speculation": draft, "draft_model_dir": place},
        f"TP {num_ranks}": {"num_seqs": NUM_SEQS, "layout": Layout(num_ranks)},
    }


def greedy(place: Path, folder: Path, prompts: list[list[int]], new_tokens: int) -> int:
    """Print a line per configuration. Returns the number of verdicts "different"."""
    model = load(folder)
    expected = references(model, prompts, new_tokens)
    print(f"{'configuration':14}", *VERDICTS, "preemptions  hits  drafts  right      s", sep="  ")
    total: Counter[str] = Counter()

    def answers(name: str, **options: Any) -> list[list[int]]:
        started = time.monotonic()
        outputs, stats = generate(place, prompts, new_tokens, ignore_eos=True, **options)
        against = expected
        if name in ROUNDED:
            rounded = load(folder)
            round_weights(rounded, place, name)
            against = references(rounded, prompts, new_tokens)
        pairs = zip(against, outputs, strict=True)
        verdicts = Counter(compare(one, tokens).verdict for one, tokens in pairs)
        total.update(verdicts)
        print(
            f"{name:14}", *(f"{verdicts[verdict]:{len(verdict)}}" for verdict in VERDICTS),
            f"{stats.preemptions:11}  {stats.prefix_hits_tokens:4}  {stats.draft_tokens:6}",
            f"{sum(stats.accepted_by_position):5}  {time.monotonic() - started:5.1f}",
            sep="  ", flush=True,
        )  # fmt: skip
        return outputs

    for name, options in configurations(place).items():
        answers(name, **options)
    others = {kind: answers(kind, num_seqs=NUM_SEQS, quantization=kind) for kind in ROUNDED}
    print("in all:", ", ".join(f"{total[verdict]} {verdict}" for verdict in VERDICTS))
    others["bfloat16"], _ = generate(
        place, prompts, new_tokens, ignore_eos=True, num_seqs=NUM_SEQS, dtype="bfloat16"
    )
    for name, outputs in others.items():
        print_positions(name, expected, outputs)
    return total["different"]


def print_positions(name: str, expected: list[Reference], outputs: list[list[int]]) -> None:
    """Print positions of the first difference; an equal answer counts as a difference after its end."""
    new_tokens = len(outputs[0])
    firsts = [first_difference(one, o) for one, o in zip(expected, outputs, strict=True)]
    places = [new_tokens if first is None else first for first in firsts]
    low, median, high = (
        "none" if place == new_tokens else f"{place:g}"
        for place in statistics.quantiles(places, n=4, method="inclusive")
    )
    print(
        f"{name}: {firsts.count(None)} of {len(firsts)} equal to float32; first difference after"
        f" {low}, {median}, {high} tokens (quartiles)",
        flush=True,
    )


def perplexity(place: Path, windows: list[list[int]], **options: Any) -> float:
    """Perplexity of all tokens but each window's first, from the engine's prompt_logprobs."""
    sampling = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    told, _ = events(place, windows, sampling, chunk_tokens=WINDOW_TOKENS, **options)
    logprobs = [one.logprob for own in told for event in own for one in event.prompt_logprobs]
    assert len(logprobs) == sum(len(window) - 1 for window in windows)
    return math.exp(-statistics.fmean(logprobs))


@torch.inference_mode()
def reference_perplexity(folder: Path, windows: list[list[int]]) -> float:
    model = load(folder)
    losses = [
        torch.nn.functional.cross_entropy(model(ids[None, :-1]).logits[0], ids[1:]).item()
        for ids in map(torch.tensor, windows)
    ]
    return math.exp(statistics.fmean(losses))


def perplexities(place: Path, folder: Path, windows: list[list[int]]) -> None:
    num_tokens = sum(len(window) - 1 for window in windows)
    print(f"perplexity of {num_tokens} tokens in windows of {WINDOW_TOKENS}")
    print(f"transformers, float32         {reference_perplexity(folder, windows):9.4f}", flush=True)
    formats: dict[tuple[str, str], dict[str, Any]] = {
        ("float32", "auto"): {},
        ("bfloat16", "auto"): {"dtype": "bfloat16"},
        **{(kind, "auto"): {"quantization": kind} for kind in ROUNDED},
        **{("float32", kv): {"kv_dtype": KV_DTYPES[kv]} for kv in KV_FORMATS},
    }
    for (weights, kv), options in formats.items():
        found = perplexity(place, windows, **options)
        print(f"weights {weights:9}  KV {kv:7}  {found:9.4f}", flush=True)


def main() -> None:
    parser = option_parser(__doc__, new_tokens=32, text_tokens=8192)
    parser.add_argument("model", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--prompts", type=int, default=64, help="0: perplexity only")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    folder = args.reference or args.model
    text = Text(args.model)
    num_different = 0
    if args.prompts:
        prompts = text.prompts(args.prompts)
        print(f"{args.model}: {len(prompts)} prompts, {args.new_tokens} new tokens", flush=True)
        num_different = greedy(args.model, folder, prompts, args.new_tokens)
    perplexities(args.model, folder, text.slices(args.text_tokens // WINDOW_TOKENS, WINDOW_TOKENS))
    sys.exit(1 if num_different else 0)


if __name__ == "__main__":
    main()
