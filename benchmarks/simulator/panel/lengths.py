"""Classes of prompt and output lengths, drawn at random around the usual ones of each use."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from benchmarks.simulator.panel.shapes import log_uniform

from penstock.sim.workload.lengths import LogNormal, Mix, RequestClass

Range = tuple[float, float]
DRIFTING = "drifting"
# A drifting load changes its mix this often.
DRIFT_STEPS = 6


@dataclass(frozen=True, slots=True)
class Use:
    """Ranges of a use. prompt, output: median tokens. tails: 99th percentile over median, of both."""

    prompt: Range
    output: Range
    tails: tuple[Range, Range]
    max_prompt: int
    max_output: int
    prefix_share: Range
    profiles: tuple[str, ...]


SMALL = ("llama-3.1-8b-l4", "qwen3-32b-a100", "qwen2.5-0.5b-cpu", "llama-3.1-8b-a100")
LARGE = (
    "llama-3.3-70b-a100-tp4",
    "llama-3.3-70b-h100-tp4",
    "qwen3-32b-h100-tp2",
    "llama-3.1-8b-a100",
)
ANY = ("llama-3.1-8b-l4", "llama-3.1-8b-a100", "llama-3.1-8b-h100", "llama-3.3-70b-a100-tp4")

USES: Mapping[str, Use] = {
    "chat": Use((150, 1200), (80, 350), ((3, 10), (3, 8)), 8_000, 2_000, (0, 0.7), SMALL),
    "rag": Use((2500, 10_000), (100, 400), ((1.5, 3), (2, 5)), 24_000, 2_000, (0, 0.3), LARGE),
    "code": Use((700, 2500), (10, 40), ((3, 6), (4, 12)), 8_000, 500, (0, 0.5), SMALL),
    "reasoning": Use((100, 900), (1500, 5000), ((4, 12), (2, 4)), 8_000, 16_000, (0, 0.3), ANY),
    "agents": Use((4000, 12_000), (80, 500), ((2, 4), (3, 8)), 32_000, 3_000, (0.6, 0.95), LARGE),
}
NAMES = (*USES, DRIFTING)
# On a CPU prompts and answers are this much shorter.
CPU_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mixes over time, with a profile that serves them."""

    mixes: tuple[Mix, ...]
    profile: str


def draw_lengths(draw: Random, name: str, duration_s: float) -> Lengths:
    """Draw lengths of a class. A drifting load changes from one use to another in DRIFT_STEPS steps."""
    if name != DRIFTING:
        profile = draw.choice(USES[name].profiles)
        return Lengths((Mix(classes=(_class_of(draw, USES[name], profile),)),), profile)
    names = draw.sample(list(USES), 2)
    profile = draw.choice(LARGE)
    first, second = (_class_of(draw, USES[name], profile) for name in names)
    begin, end = draw.uniform(0.0, 0.3), draw.uniform(0.5, 1.0)
    mixes = []
    for step in range(DRIFT_STEPS):
        share = begin + (end - begin) * step / (DRIFT_STEPS - 1)
        weighted = [(first, 1 - share), (second, share)]
        classes = tuple(c.model_copy(update={"weight": w}) for c, w in weighted if w > 0)
        mixes.append(Mix(from_s=step * duration_s / DRIFT_STEPS, classes=classes))
    return Lengths(tuple(mixes), profile)


def _class_of(draw: Random, use: Use, profile: str) -> RequestClass:
    scale = CPU_SHARE if profile.endswith("cpu") else 1.0
    prompt, output = (scale * log_uniform(draw, *median) for median in (use.prompt, use.output))
    prompt_tail, output_tail = (log_uniform(draw, *tail) for tail in use.tails)
    shares_prefix = draw.random() < 0.6 or use.prefix_share[0] > 0
    return RequestClass(
        prompt=_length(prompt, prompt_tail, scale * use.max_prompt),
        output=_length(output, output_tail, scale * use.max_output),
        prefix_share=round(draw.uniform(*use.prefix_share), 2) if shares_prefix else 0.0,
        prefix_groups=draw.choice([2, 8, 32]),
    )


def _length(median: float, tail: float, most: float) -> LogNormal:
    median = max(2.0, round(median))
    return LogNormal(median=median, p99=round(median * tail), max=int(most))
