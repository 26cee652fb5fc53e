"""Estimates FLOPs and memory traffic of a step from the model's shape. Imports no torch.

    flops      2 for each parameter used by a token, and in each layer 4 for each element of each
               head and each position that it attends to. This is the forward part of
               6 N + 12 L H Q T in Chowdhery et al., PaLM, 2022, appendix B, but counts only the
               positions before a token and within its window instead of a whole context
    read       the weights, once per step, and each sequence's keys and values, once per step. T
               tokens with k of E experts each use E (1 - (1 - k / E)^T) experts on average, if the
               router selects evenly
    written    keys and values of the new tokens

Activations between products are not counted, nor is the work of a draft model: they are small, or
stay in a cache.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class StepCost:
    """Estimated floating-point operations and memory traffic of one step, per rank."""

    flops: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0


class StepCostModel:
    """Estimates the cost of steps for one of num_ranks equal parts of a model."""

    def __init__(
        self, config: ModelConfig, weights_bytes: int, kv_bytes_per_token: int, num_ranks: int = 1
    ) -> None:
        """weights_bytes, kv_bytes_per_token: of the whole model."""
        self._num_ranks = num_ranks
        # Sums over the layers of each window: FLOPs for a position, and numbers in the KV cache of a token.
        self._flops: Counter[int | None] = Counter()
        self._numbers: Counter[int | None] = Counter()
        attention = 0
        for layer in config.layers:
            self._flops[layer.window_tokens] += layer.attention.flops_per_position
            self._numbers[layer.window_tokens] += layer.attention.kv.block_bytes(1, 1)
            attention += sum(product.num_parameters for product in layer.attention.projections)
        self._kv_bytes_per_token = kv_bytes_per_token
        mlp = (2 if config.family.mlp == "plain" else 3) * config.intermediate_size
        num_routed = sum(layer.has_experts for layer in config.layers)
        num_dense = config.num_layers - num_routed
        common = num_dense * mlp
        self._num_experts, self._chosen, expert = 1, 0, 0
        if config.experts is not None:
            self._num_experts = config.experts.num_experts
            self._chosen = config.experts.num_experts_per_token
            expert = 3 * config.experts.intermediate_size
            common += num_routed * self._num_experts  # the routers
        self._common = attention + common * config.hidden_size
        self._per_expert = num_routed * expert * config.hidden_size
        self._head = config.vocab_size * config.hidden_size
        tables = self._head if config.tie_word_embeddings else 2 * self._head
        held = self._common + self._num_experts * self._per_expert + tables
        self._weight_bytes = weights_bytes / held

    def estimate(self, sequences: Iterable[ScheduledSequence]) -> StepCost:
        """Estimate the cost of a step that computes these parts of sequences."""
        num_tokens = num_rows = attention_flops = num_read = 0
        for s in sequences:
            num_tokens += s.num_tokens
            num_rows += s.num_rows
            for window_tokens, flops in self._flops.items():
                attention_flops += flops * num_attended(s.start, s.end, window_tokens)
                first = 0 if window_tokens is None else max(0, s.start - window_tokens + 1)
                num_read += self._numbers[window_tokens] * (s.end - first)
        if not num_tokens:
            return StepCost()
        met = self._common + self._chosen * self._per_expert
        flops = 2 * (num_tokens * met + num_rows * self._head) + attention_flops
        num_met = self._num_experts * (1 - (1 - self._chosen / self._num_experts) ** num_tokens)
        weights = self._common + num_met * self._per_expert + (self._head if num_rows else 0)
        kv_bytes = num_read / self._numbers.total() * self._kv_bytes_per_token
        return StepCost(
            flops / self._num_ranks,
            (weights * self._weight_bytes + kv_bytes) / self._num_ranks,
            num_tokens * self._kv_bytes_per_token / self._num_ranks,
        )


def num_attended(start: int, end: int, window_tokens: int | None) -> int:
    """Sum over the tokens at [start, end) of the positions that each attends to, itself included."""
    whole = (end * (end + 1) - start * (start + 1)) // 2
    if window_tokens is None or end <= window_tokens:
        return whole
    cut = max(start, window_tokens)  # from here on, each attends to window_tokens
    return num_attended(start, cut, None) + (end - cut) * window_tokens
