"""Where an engine's greedy tokens part from a reference's: is there a reason other than a fault?

tie        float32: the reference prefers its own token to the engine's by less than 1e-4.
           bfloat16: by less than 2 units in the last place of its best logit
noise      bfloat16: by less than twice the reference's own error there, the largest distance of
           a logit from what it computes in float32 with the same weights and experts
rerouted   bfloat16, with experts: a router whose choice was nearer than twice its own error
           chose otherwise, and given the engine's choice of experts, the reference's preference
           is noise
different  anything else
"""

import copy
import math
from dataclasses import dataclass

import torch
import transformers
from expert_choices import EngineRouters, Logits, ReferenceRouters

TIE_GAP = 1e-4
TIE_ULPS = 2
# Both computations are off, each to either side.
NOISE_FACTOR = 2
VERDICTS = ("equal", "tie", "noise", "rerouted", "different")


@dataclass(frozen=True, slots=True)
class Reference:
    """tokens: the reference's output; logits: [tokens, vocabulary], of which each is the first.

    routers: what they said of each position, where there are any.
    """

    prompt: list[int]
    tokens: list[int]
    logits: torch.Tensor
    routers: Logits


@dataclass(frozen=True, slots=True)
class Judgement:
    """verdict: one of VERDICTS, on the first difference, after which nothing can be compared.

    gap: by how much the reference prefers its own token. noise: its own error there. router_gap: by
    how much its router preferred other experts than the engine's, at most.
    """

    verdict: str
    gap: float = 0.0
    noise: float = 0.0
    router_gap: float = 0.0


def compare(expected: Reference, tokens: list[int]) -> Judgement:
    """Of tokens computed in float32."""
    at = first_difference(expected, tokens)
    if at is None:
        return Judgement("equal")
    gap = gap_of(expected.logits[at], tokens[at])
    return Judgement("tie" if gap < TIE_GAP else "different", gap)


class Judge:
    """Explains where tokens computed in bfloat16 part from references'."""

    def __init__(self, model: transformers.PreTrainedModel, references: list[Reference]) -> None:
        """model: in bfloat16, what gave the references."""
        self._model = model
        self._references = references
        self._routers = ReferenceRouters(model)
        self._exact = copy.deepcopy(model).float()
        self._exact_routers = ReferenceRouters(self._exact)
        errors = [self._errors(reference) for reference in references]
        self._noise = [of_tokens for of_tokens, _ in errors]
        # By layer, of the routers: errors have a long tail, so one answer's say little.
        self._router_noise = [
            max(of_layer) for of_layer in zip(*(e for _, e in errors), strict=True)
        ]

    def judge(self, index: int, tokens: list[int], engine: EngineRouters | None) -> Judgement:
        """tokens: for which reference `index` has others. engine: what its routers said, if it has
        any."""
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
        """How far the reference is from itself in float32 with the same weights and, if there are
        any, the same experts: the largest distance of a logit, for each token, and of one of each
        router."""
        ids = torch.tensor([expected.prompt + expected.tokens[:-1]])
        chosen = self._exact_routers.favourites(expected.routers)
        with self._exact_routers.imposing(chosen), self._exact_routers.recording() as exact:
            logits = self._exact(ids).logits[0, len(expected.prompt) - 1 :]
        pairs = zip(exact, expected.routers, strict=True)
        of_routers = [(a - b).abs().max().item() for a, b in pairs]
        return (logits - expected.logits).abs().amax(-1), of_routers

    @torch.inference_mode()
    def _reroutes(
        self, expected: Reference, tokens: list[int], at: int, noise: float, engine: EngineRouters
    ) -> float | None:
        """The largest preference of a router that was overruled, where all were near ties and, with
        the engine's choice of experts, nothing but noise is left. None where it is not so."""
        ids = expected.prompt + expected.tokens[:at]
        said = engine.said(ids)
        flips = self._routers.first_flips(said, expected.routers)
        limits = [NOISE_FACTOR * noise for noise in self._router_noise]
        if not flips or any(flip.gap >= limits[flip.layer] for flip in flips):
            return None
        with self._routers.imposing(self._routers.favourites(said)):
            logits = self._model(torch.tensor([ids])).logits[0, -1].float()
        is_noise = gap_of(logits, tokens[at]) < NOISE_FACTOR * noise
        return max(flip.gap for flip in flips) if is_noise else None


def first_difference(expected: Reference, tokens: list[int]) -> int | None:
    pairs = zip(expected.tokens, tokens, strict=True)
    return next((index for index, (wanted, token) in enumerate(pairs) if wanted != token), None)


def gap_of(logits: torch.Tensor, token: int) -> float:
    """By how much the best token is preferred to this one."""
    return (logits.max() - logits[token]).item()


def ulp(number: float) -> float:
    """Unit in the last place of a bfloat16, which has 8 bits of precision."""
    return 2.0 ** (math.frexp(number)[1] - 8)
