"""Tests sampled tokens against the exact distribution of their parameters, with chi-square tests.

    python -m benchmarks.engine.sampling_distribution [--settings 400] [--draws 4000] [--seed 0]

Half of the settings sample after draft tokens, as in speculation. Each also samples with SEEDS seeds alone
and in a batch of 32 settings. Exits with 1 if a p-value stays below FLOOR divided by the number of settings
(Bonferroni), if the p-values are not uniform, or if a seed gives another token in a batch.
"""

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks.options import option_parser
from scipy.stats import chisquare, kstest

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.sampler import sample

VOCAB_SIZE = 24
# Cells with fewer expected draws are merged, as the chi-square test requires.
MIN_EXPECTED = 5.0
FLOOR = 0.01
SEEDS = 8
BATCH = 32


@dataclass(frozen=True, slots=True)
class Setting:
    """Logits of two positions, the history before them, and the sampling parameters."""

    logits: list[list[float]]
    wishes: dict[str, Any]
    prompt: list[int]
    output: list[int]
    with_draft: bool

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(max_tokens=100, **self.wishes)


def make_settings(count: int, seed: int) -> list[Setting]:
    draw = random.Random(seed)
    return [_setting(draw, with_draft=index % 2 == 1) for index in range(count)]


def _setting(draw: random.Random, *, with_draft: bool) -> Setting:
    tokens = range(VOCAB_SIZE)
    possible: dict[str, Any] = {
        "temperature": draw.choice([0.3, 0.7, 1.0, 1.6, 4.0]),
        "top_k": draw.choice([1, 2, 5, 11, 23, 24, 1000]),
        "top_p": draw.choice([0.05, 0.5, 0.8, 0.95, 0.999]),
        "min_p": draw.choice([0.01, 0.1, 0.4, 1.0]),
        "presence_penalty": draw.uniform(-2, 2),
        "frequency_penalty": draw.uniform(-2, 2),
        "repetition_penalty": draw.uniform(0.5, 2),
        "logit_bias": {token: draw.uniform(-5, 5) for token in draw.sample(tokens, 4)},
        "allowed_token_ids": frozenset(draw.sample(tokens, 12)),
        "bad_words": ((draw.randrange(24),), (draw.randrange(4), draw.randrange(4))),
    }
    names = draw.sample(sorted(possible), draw.randint(0, len(possible)))
    return Setting(
        logits=[[draw.gauss(0, 2) for _ in tokens] for _ in range(2)],
        wishes={name: possible[name] for name in names},
        prompt=[draw.randrange(VOCAB_SIZE) for _ in range(draw.randint(1, 9))],
        output=[draw.randrange(4) for _ in range(draw.randint(0, 9))],
        with_draft=with_draft,
    )


def exact(
    logits: Sequence[float], sampling: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> list[float]:
    """Exact distribution, computed per token in plain Python, independent of the sampler."""
    values = dict(enumerate(logits))
    if sampling.allowed_token_ids is not None:
        values = {t: v for t, v in values.items() if t in sampling.allowed_token_ids}
    for word in sampling.bad_words:
        prefix = list(word[:-1])
        if not prefix or list(output[-len(prefix) :]) == prefix:
            values.pop(word[-1], None)
    for token in values:
        values[token] += sampling.logit_bias.get(token, 0.0)
        if token in prompt or token in output:
            factor = sampling.repetition_penalty
            values[token] *= 1 / factor if values[token] > 0 else factor
        times = list(output).count(token)
        values[token] -= sampling.frequency_penalty * times
        values[token] -= sampling.presence_penalty if times else 0.0
    weights = _softmax({t: v / sampling.temperature for t, v in values.items()})
    best = max(weights.values())
    order = sorted(
        (t for t, w in weights.items() if w >= sampling.min_p * best * (1 - 1e-6)),
        key=lambda token: -weights[token],
    )
    order = order[: sampling.top_k] if sampling.top_k else order
    total = sum(weights[token] for token in order)
    kept: dict[int, float] = {}
    for token in order:
        if sampling.top_p < 1 and kept and sum(kept.values()) / total >= sampling.top_p:
            break
        kept[token] = weights[token]
    total = sum(kept.values())
    return [kept.get(token, 0.0) / total for token in range(len(logits))]


def _softmax(values: dict[int, float]) -> dict[int, float]:
    top = max(values.values())
    exponentials = {token: math.exp(value - top) for token, value in values.items()}
    total = sum(exponentials.values())
    return {token: value / total for token, value in exponentials.items()}


def draw_many(setting: Setting, num_draws: int, first_seed: int) -> tuple[list[int], list[float]]:
    """Counts of each token, and its exact probability.

    With a draft, the second position counts, and only if the draft was accepted.
    """
    drafts = drafts_of(setting)
    output = [*setting.output, *drafts]
    rows = torch.tensor(setting.logits[: 1 + len(drafts)])
    sequences = [_scheduled(setting, drafts, first_seed + index) for index in range(num_draws)]
    results = sample(rows.repeat(num_draws, 1), sequences).results()
    last = [r.token_ids[-1] for r in results if len(r.token_ids) == len(rows)]
    counts = torch.bincount(torch.tensor(last, dtype=torch.int64), minlength=VOCAB_SIZE).tolist()
    return counts, exact(setting.logits[len(drafts)], setting.sampling, setting.prompt, output)


def drafts_of(setting: Setting) -> tuple[int, ...]:
    """Draft of a setting: the most probable token, if the setting uses drafts."""
    if not setting.with_draft:
        return ()
    first = exact(setting.logits[0], setting.sampling, setting.prompt, setting.output)
    return (max(range(VOCAB_SIZE), key=first.__getitem__),)


def num_seeds_that_differ(settings: list[Setting]) -> int:
    """Number of seeds that sample another token in a batch than alone."""
    num_different = 0
    for first in range(0, len(settings), BATCH):
        of_batch = [(setting, drafts_of(setting)) for setting in settings[first : first + BATCH]]
        rows = [torch.tensor(setting.logits[: 1 + len(drafts)]) for setting, drafts in of_batch]
        for seed in range(SEEDS):
            sequences = [_scheduled(setting, drafts, seed) for setting, drafts in of_batch]
            together = sample(torch.cat(rows), sequences).results()
            alone = [
                sample(own, [one]).results()[0] for own, one in zip(rows, sequences, strict=True)
            ]
            pairs = zip(together, alone, strict=True)
            num_different += sum(a.token_ids != b.token_ids for a, b in pairs)
    return num_different


def _scheduled(setting: Setting, drafts: tuple[int, ...], seed: int) -> ScheduledSequence:
    history = [*setting.prompt, *setting.output]
    return ScheduledSequence(
        request_id="",
        start=len(history) - 1,
        token_ids=(history[-1], *drafts),
        block_table=(),
        is_sampled=True,
        sampling=SamplingParams(max_tokens=100, seed=seed, **setting.wishes),
        history=history,
        num_prompt_tokens=len(setting.prompt),
        num_drafts=len(drafts),
    )


def p_value(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """P-value of the counts; 1 if only one token is possible and drawn, 0 if an impossible one is drawn."""
    total = sum(counts)
    pairs = sorted((p * total, count) for p, count in zip(probabilities, counts, strict=True) if p)
    if sum(count for _, count in pairs) < total:
        return 0.0
    cells: list[tuple[float, int]] = []
    expected, observed = 0.0, 0
    for cell_expected, cell_observed in pairs:
        expected, observed = expected + cell_expected, observed + cell_observed
        if expected >= MIN_EXPECTED:
            cells.append((expected, observed))
            expected, observed = 0.0, 0
    if expected and cells:
        cells[-1] = (cells[-1][0] + expected, cells[-1][1] + observed)
    if len(cells) < 2:
        return 1.0
    return float(chisquare([o for _, o in cells], [e for e, _ in cells]).pvalue)


def campaign(num_settings: int, num_draws: int, seed: int) -> list[float]:
    """Run all settings. Returns a p-value for each."""
    return [
        p_value(*draw_many(setting, num_draws, index * num_draws))
        for index, setting in enumerate(make_settings(num_settings, seed))
    ]


def verdict(p_values: Sequence[float]) -> tuple[bool, str]:
    tested = [p for p in p_values if p < 1.0]
    evenness = float(kstest(tested, "uniform").pvalue)
    least = min(p_values) * len(p_values)
    text = (
        f"{len(p_values)} settings, {len(tested)} with more than one cell: least p-value "
        f"{min(p_values):.2g}, corrected {min(1.0, least):.2g}; evenness p = {evenness:.2g}"
    )
    return least >= FLOOR and evenness >= FLOOR, text


def main() -> None:
    args = option_parser(__doc__, settings=400, draws=4000, seed=0).parse_args()
    passed, text = verdict(campaign(args.settings, args.draws, args.seed))
    num_different = num_seeds_that_differ(make_settings(args.settings, args.seed))
    print(
        f"seed {args.seed}: {text}; {num_different} of {SEEDS * args.settings} seeds draw otherwise "
        f"in a batch of {BATCH}"
    )
    sys.exit(0 if passed and not num_different else 1)


if __name__ == "__main__":
    main()
