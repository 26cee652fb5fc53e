"""Judges each greedy token of the engine, given the tokens before it, by decision 18."""

from collections import Counter
from collections.abc import Sequence

import torch
from benchmarks.gpu.context import Record
from benchmarks.gpu.greedy.subject import Reference, rounding_kv
from tests.support.engine.verdicts import NOISE_FACTOR, TIE_ULPS, Judgement, gap_of, ulp


def judge_tokens(
    reference: Reference, prompt: Sequence[int], tokens: Sequence[int], kv_dtype: str | None = None
) -> list[Judgement]:
    """The verdict on each token, as a choice after the prompt and the engine's own tokens before it.

    So a token that is excused does not end the comparison. The verdicts are those of
    tests/support/engine/verdicts.py; the reference's error is its largest distance from the model in
    float32, whose weights are not rounded to bfloat16, at the token or on average over the answer: the
    engine's own error may be of average size where the reference is exact by chance. kv_dtype: to which
    both round keys and values.
    """
    ids = torch.tensor([[*prompt, *tokens]], device=reference.rounded.device)
    with torch.inference_mode(), rounding_kv(kv_dtype):
        logits, exact = (
            model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
            for model in (reference.rounded, reference.exact)
        )
    errors = (logits - exact).abs().amax(-1)
    noise = errors.clamp_min(errors.mean()).tolist()
    return [
        _judge(row, token, of_token)
        for row, token, of_token in zip(logits.cpu(), tokens, noise, strict=True)
    ]


def _judge(logits: torch.Tensor, token: int, noise: float) -> Judgement:
    gap = gap_of(logits, token)
    if gap == 0:
        return Judgement("equal", gap, noise)
    if gap < TIE_ULPS * ulp(logits.max().item()):
        return Judgement("tie", gap, noise)
    return Judgement("noise" if gap < NOISE_FACTOR * noise else "different", gap, noise)


def summarize(judgements: Sequence[Sequence[Judgement]]) -> Record:
    """Figures of the judgements of several answers. ok: no token is different.

    difference: the first different token of each answer that has one.
    """
    every = [judgement for answer in judgements for judgement in answer]
    verdicts = Counter(judgement.verdict for judgement in every)
    wrong = [
        f"answer {index}: token {at} has a gap of {judgement.gap:.3g}, the noise is {judgement.noise:.3g}"
        for index, answer in enumerate(judgements)
        for at, judgement in [_first_different(answer)]
        if judgement is not None
    ]
    record: Record = {
        "ok": bool(every) and not wrong,
        "tokens": len(every),
        **{name: verdicts[name] for name in ("equal", "tie", "noise", "different")},
        "largest_excused_gap": max((j.gap for j in every if j.verdict != "different"), default=0.0),
        "mean_noise": sum(j.noise for j in every) / max(1, len(every)),
    }
    return record | ({"difference": "\n".join(wrong[:5])} if wrong else {})


def _first_different(answer: Sequence[Judgement]) -> tuple[int, Judgement | None]:
    for at, judgement in enumerate(answer):
        if judgement.verdict == "different":
            return at, judgement
    return 0, None
