"""Explains the first difference between the engine's greedy tokens and a reference's.

The gap is the reference's logit of its own token minus that of the engine's token. The verdicts are:

tie        float32: gap below 1e-4. bfloat16: below 2 units in the last place of the best logit
noise      bfloat16: gap below twice the reference's own error, the largest distance of a logit from the
           reference in float32 with the same weights and experts
rerouted   bfloat16, with experts: a router with a margin below twice its own error chose other experts, and
           with the engine's experts the gap is noise
different  anything else
"""

import copy
import math
from dataclasses import dataclass

import torch
import transformers
from tests.support.engine.expert_choices import EngineRouters, Logits, ReferenceRouters

TIE_GAP = 1e-4
TIE_ULPS = 2
# Both computations have an error, in either direction.
NOISE_FACTOR = 2
VERDICTS = ("equal", "tie", "noise", "rerouted", "different")


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference output. tokens: the argmax of logits [tokens, vocabulary].

    routers: router logits of each position, for models with experts.
    """

    prompt: list[int]
    tokens: list[int]
    logits: torch.Tensor
    routers: Logits


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on the first difference; later tokens are not comparable.

    gap: logit difference between the reference's token and the engine's. noise: the reference's own error.
    router_gap: largest margin of a router that chose other experts than the engine's.
    """

    verdict: str
    gap: float = 0.0
    noise: float = 0.0
    router_gap: float = 0.0


def compare(expected: Reference, tokens: list[int]) -> Judgement:
    """Judge tokens computed in float32."""
    at = first_difference(expected, tokens)
    if at is None:
        return Judgement("equal")
    gap = gap_of(expected.logits[at], tokens[at])
    return Judgement("tie" if gap < TIE_GAP else "different", gap)


class Judge:
    """Judge of tokens computed in bfloat16."""

    def __init__(self, model: transformers.PreTrainedModel, references: list[Reference]) -> None:
        """Create a judge. model: the bfloat16 model that computed the references."""
        self._model = model
        self._references = references
        self._routers = ReferenceRouters(model)
        self._exact = copy.deepcopy(model).float()  # type: ignore[no-untyped-call]
        self._exact_routers = ReferenceRouters(self._exact)
        errors = [self._errors(reference) for reference in references]
        self._noise = [of_tokens for of_tokens, _ in errors]
        # Router errors by layer, over all answers: their distribution has a long tail.
        self._router_noise = [
            max(of_layer) for of_layer in zip(*(e for _, e in errors), strict=True)
        ]

    def judge(self, index: int, tokens: list[int], engine: EngineRouters | None) -> Judgement:
        """Judge tokens that differ from reference `index`. engine: the engine's router logits, if any."""
        expected = self._references[index]
        at = first_difference(expected, tokens)
        if at is None:
            return Judgement("equal")
        gap = gap_of(expected.logits[at], tokens[at])
        if gap < TIE_ULPS * ulp(expected.logits[at].max().item()):
            return Judgement("tie", gap)
        noise = self._noise[index][at].item()
        if gap < NOISE_FACTOR * noise:
            return Judgement("noise", gap, noise)
        router_gap = None if engine is None else self._reroutes(expected, tokens, at, noise, engine)
        if router_gap is None:
            return Judgement("different", gap, noise)
        return Judgement("rerouted", gap, noise, router_gap)

    @torch.inference_mode()
    def _errors(self, expected: Reference) -> tuple[torch.Tensor, list[float]]:
        """Errors of the reference against float32 with the same weights and experts.

        Returns the largest logit error of each token, and of each router.
        """
        ids = torch.tensor([expected.prompt + expected.tokens[:-1]])
        chosen = self._exact_routers.favorites(expected.routers)
        with self._exact_routers.imposing(chosen), self._exact_routers.recording() as exact:
            logits = self._exact(ids).logits[0, len(expected.prompt) - 1 :]
        pairs = zip(exact, expected.routers, strict=True)
        of_routers = [(a - b).abs().max().item() for a, b in pairs]
        return (logits - expected.logits).abs().amax(-1), of_routers

    @torch.inference_mode()
    def _reroutes(
        self, expected: Reference, tokens: list[int], at: int, noise: float, engine: EngineRouters
    ) -> float | None:
        """Largest margin of an overruled router, if all were near ties and only noise is left.

        "Noise is left" means: with the engine's experts the gap is noise. None otherwise.
        """
        ids = expected.prompt + expected.tokens[:at]
        said = engine.said(ids)
        flips = self._routers.first_flips(said, expected.routers)
        limits = [NOISE_FACTOR * noise for noise in self._router_noise]
        if not flips or any(flip.gap >= limits[flip.layer] for flip in flips):
            return None
        with self._routers.imposing(self._routers.favorites(said)):
            logits = self._model(torch.tensor([ids])).logits[0, -1].float()
        is_noise = gap_of(logits, tokens[at]) < NOISE_FACTOR * noise
        return max(flip.gap for flip in flips) if is_noise else None


def first_difference(expected: Reference, tokens: list[int]) -> int | None:
    pairs = zip(expected.tokens, tokens, strict=True)
    return next((index for index, (wanted, token) in enumerate(pairs) if wanted != token), None)


def gap_of(logits: torch.Tensor, token: int) -> float:
    """Logit of the best token minus that of this one."""
    return (logits.max() - logits[token]).item()


def ulp(number: float) -> float:
    """Unit in the last place of a bfloat16, which has 8 bits of precision."""
    return 2.0 ** (math.frexp(number)[1] - 8)
