"""Records the experts of each token in engine and reference, and imposes the engine's on the reference.

In a rounded number type, a router with a near tie may choose another expert, and the result differs from
there on. With the engine's choices imposed on the reference, the remaining difference must be noise.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from penstock_engine.core.step import ScheduledSequence, Step
from penstock_engine.execution.paged_model import row_order
from penstock_engine.execution.runner import Runner
from penstock_engine.layers.moe import MixtureOfExperts

# Router logits [positions, experts] by layer with experts.
Logits = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Flip:
    """Different choice of a router. gap: logit of its own choice minus that of the other's choice."""

    layer: int
    position: int
    gap: float


class ReferenceRouters:
    """Routers of a transformers model that computes one sequence at a time."""

    def __init__(self, model: transformers.PreTrainedModel) -> None:
        named = model.named_modules()
        self._routers = [m for name, m in named if name.endswith("mlp.gate") and _is_router(m)]

    @contextmanager
    def recording(self) -> Iterator[Logits]:
        """Record the router logits of all positions within the context manager."""
        heard: Logits = [torch.empty(0) for _ in self._routers]

        def hear(index: int, output: Any) -> None:
            heard[index] = torch.cat((heard[index], output[0].float()))

        with ExitStack() as stack:
            for index, router in enumerate(self._routers):
                hook = router.register_forward_hook(
                    lambda module, inputs, output, index=index: hear(index, output)
                )
                stack.callback(hook.remove)
            yield heard

    @contextmanager
    def imposing(self, chosen: list[torch.Tensor]) -> Iterator[None]:
        """Impose experts in a forward pass. chosen: by layer, [positions, experts per token]."""

        def impose(router: nn.Module, experts: torch.Tensor, output: Any) -> Any:
            logits, weights, _ = output
            shares = logits.float().softmax(-1).gather(-1, experts)
            if getattr(router, "norm_topk_prob", True):
                shares = shares / shares.sum(-1, keepdim=True)
            return logits, shares.to(weights.dtype), experts

        with ExitStack() as stack:
            for router, experts in zip(self._routers, chosen, strict=True):
                hook = router.register_forward_hook(
                    lambda module, inputs, output, experts=experts: impose(module, experts, output)
                )
                stack.callback(hook.remove)
            yield

    def favorites(self, said: Logits) -> list[torch.Tensor]:
        """Experts that the routers choose for these logits."""
        return [
            logits.topk(router.top_k).indices
            for router, logits in zip(self._routers, said, strict=True)
        ]

    def first_flips(self, said: Logits, own: Logits) -> "list[Flip]":
        """Flips in the lowest layer with any: places where the other logits choose other experts.

        Flips in higher layers may follow from these.
        """
        pairs = zip(self.favorites(said), self.favorites(own), strict=True)
        for layer, (theirs, ours) in enumerate(pairs):
            flips = []
            for position, (other, mine) in enumerate(
                zip(theirs.tolist(), ours.tolist(), strict=False)
            ):
                if new := set(other) - set(mine):
                    logits = own[layer][position]
                    lost = logits[list(set(mine) - set(other))].min()
                    flips.append(Flip(layer, position, (lost - logits[list(new)].max()).item()))
            if flips:
                return flips
        return []


class EngineRouters:
    """Runner that records its router logits for each token."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._said: list[torch.Tensor] = []
        self._by_prefix: dict[tuple[int, ...], torch.Tensor] = {}
        for module in runner._model.decoder.modules():  # type: ignore[union-attr]
            if isinstance(module, MixtureOfExperts):
                module.gate.register_forward_hook(
                    lambda module, inputs, output: self._said.append(output.float())
                )

    def run(self, step: Step) -> Any:
        self._said.clear()
        sampled = self._runner.run(step)
        rows = torch.stack(self._said, dim=1)  # [tokens, layers, experts]
        row = 0
        for sequence in sorted(step.sequences, key=row_order):
            tokens = _tokens(sequence)
            for position in range(sequence.start, sequence.end):
                self._by_prefix[tokens[: position + 1]] = rows[row]
                row += 1
        return sampled

    def said(self, tokens: list[int]) -> Logits:
        """Recorded logits of each position of these tokens, the latest if computed twice."""
        prefixes = (tuple(tokens[: end + 1]) for end in range(len(tokens)))
        return list(torch.stack([self._by_prefix[prefix] for prefix in prefixes], dim=1))


def _tokens(sequence: ScheduledSequence) -> tuple[int, ...]:
    known = sequence.end - sequence.num_drafts
    return (*sequence.history[:known], *sequence.drafts)


def _is_router(module: nn.Module) -> bool:
    return hasattr(module, "top_k")
