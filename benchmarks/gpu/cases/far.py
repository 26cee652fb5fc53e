"""Cases whose offsets need 64 bits: rows 2**30 numbers apart, and weights of more than 2**31 numbers."""

from collections.abc import Callable
from functools import partial

import torch
from benchmarks.gpu.cases.case import Case, Prepared, compare
from benchmarks.gpu.cases.inputs import Inputs
from benchmarks.gpu.cases.rows import ROPE_TOLERANCE, SCORE_TOLERANCE, TOLERANCE
from tests.support.engine.kernel_references import (
    adjust_logits_reference,
    group_rows_reference,
    grouped_linear_reference,
    gumbel_scores_reference,
    int4_linear_reference,
    int8_linear_reference,
    rope_reference,
)

from penstock_engine.kernels.adjust_logits import Penalties, adjust_logits
from penstock_engine.kernels.fused_add_norm import fused_add_norm
from penstock_engine.kernels.group_rows import group_rows
from penstock_engine.kernels.grouped_linear import grouped_linear
from penstock_engine.kernels.gumbel_argmax import gumbel_argmax
from penstock_engine.kernels.int4_linear import int4_linear
from penstock_engine.kernels.int8_linear import int8_linear
from penstock_engine.kernels.rope import rope
from penstock_engine.kernels.silu_mul import silu_mul
from penstock_engine.kernels.torch_ops import add_norm

BF16 = torch.bfloat16
LAST = slice(-5, None)  # the rows that are compared, of those that lie at the end


def far_row_cases(*, is_small: bool) -> list[Case]:
    """The cases. is_small: with offsets that need fewer bits, which tests the cases alone."""
    apart = 2**10 if is_small else 2**30 + 8
    many_rows = 2**6 if is_small else 2**19 + 8  # of 4,096 numbers
    cases: dict[str, Callable[[Inputs], Prepared]] = {
        "fused_add_norm": partial(_add_norm, many_rows),
        "rope": partial(_rope, apart),
        "gate": partial(_gate, many_rows),
        "int8_linear weights": partial(_int8_linear, many_rows),
        "int8_linear rows": partial(_int8_linear_rows, apart),
        "int4_linear weights": partial(_int4_linear, 2 * many_rows),
        "grouped_linear": partial(_grouped_linear, apart, 2 if is_small else 129),
        "adjust_logits": partial(_adjust_logits, apart, 8 if is_small else 16_400),
        "gumbel_argmax": partial(_gumbel_argmax, apart),
    }
    return [Case("far", name, prepare) for name, prepare in cases.items()]


def _rows_apart(
    apart: int, num_rows: int, size: int, dtype: torch.dtype, inputs: Inputs
) -> torch.Tensor:
    """Random rows that lie so many numbers apart; what is between them is not touched."""
    rows = torch.empty(num_rows, apart, dtype=dtype, device=inputs.device)[:, :size]
    return rows.copy_(inputs.normal(num_rows, size)) if not inputs.is_empty else rows


def _many(num_rows: int, size: int, dtype: torch.dtype, inputs: Inputs) -> torch.Tensor:
    """Rows of which only the last are random, and all others 0."""
    rows = inputs.zeros(num_rows, size, dtype=dtype)
    rows[-64:] = inputs.normal(64, size).to(dtype)
    return rows


def _add_norm(num_rows: int, inputs: Inputs) -> Prepared:
    x, residual = (_many(num_rows, 4096, BF16, inputs) for _ in range(2))
    weight = inputs.normal(4096, dtype=BF16)
    before = residual[LAST].clone()

    def differences(output: torch.Tensor) -> list[str]:
        expected = add_norm(x[LAST], before, weight, 1e-6)
        return [
            *compare("the norm", output[LAST], expected, TOLERANCE[BF16]),
            *compare("the sum", residual[LAST], before, TOLERANCE[BF16]),
        ]

    return Prepared(partial(fused_add_norm, x, residual, weight, 1e-6), differences)


def _rope(apart: int, inputs: Inputs) -> Prepared:
    q = _rows_apart(apart, 3, 4 * 64, BF16, inputs).view(3, 4, 64)
    k = _rows_apart(apart, 3, 2 * 64, BF16, inputs).view(3, 2, 64)
    cos, sin = (inputs.normal(3, 32) for _ in range(2))
    q_before, k_before = q.clone(), k.clone()

    def differences(outputs: None) -> list[str]:
        rope_reference(q_before, k_before, cos, sin)
        return [
            *compare("the queries", q, q_before, ROPE_TOLERANCE[BF16]),
            *compare("the keys", k, k_before, ROPE_TOLERANCE[BF16]),
        ]

    return Prepared(partial(rope, q, k, cos, sin), differences)


def _gate(num_rows: int, inputs: Inputs) -> Prepared:
    gate_up = _many(num_rows, 4096, BF16, inputs)

    def differences(output: torch.Tensor) -> list[str]:
        gates, up = gate_up[LAST].float().chunk(2, dim=-1)
        expected = (torch.nn.functional.silu(gates) * up).to(BF16)
        return compare("the gated rows", output[LAST], expected, TOLERANCE[BF16])

    return Prepared(partial(silu_mul, gate_up), differences)


def _int8_linear(num_outputs: int, inputs: Inputs) -> Prepared:
    x = inputs.normal(3, 4096, dtype=BF16)
    codes = torch.empty(num_outputs, 4096, dtype=torch.int8, device=inputs.device)
    if not inputs.is_empty:
        codes[-64:] = inputs.integers(-128, 128, 64, 4096, dtype=torch.int8)
    scales = inputs.uniform(num_outputs, 1, dtype=BF16, below=4e-4)

    def differences(output: torch.Tensor) -> list[str]:
        expected = int8_linear_reference(x, codes[LAST], scales[LAST], 4096)
        return compare("the last outputs", output[:, LAST], expected, 3e-2)

    return Prepared(partial(int8_linear, x, codes, scales, 4096), differences)


def _int8_linear_rows(apart: int, inputs: Inputs) -> Prepared:
    x = _rows_apart(apart, 3, 64, BF16, inputs)
    codes = inputs.integers(-128, 128, 70, 64, dtype=torch.int8)
    scales = inputs.uniform(70, 1, dtype=BF16, below=4e-3)

    def differences(output: torch.Tensor) -> list[str]:
        expected = int8_linear_reference(x, codes, scales, 64)
        return compare("the product", output, expected, 3e-2)

    return Prepared(partial(int8_linear, x, codes, scales, 64), differences)


def _int4_linear(num_outputs: int, inputs: Inputs) -> Prepared:
    num_outputs = num_outputs // 64 * 64
    x = inputs.normal(3, 4096, dtype=BF16)
    packed = torch.empty(num_outputs // 64, 4096, 32, dtype=torch.uint8, device=inputs.device)
    if not inputs.is_empty:
        packed[-1] = inputs.integers(0, 256, 4096, 32, dtype=torch.uint8)
    factors = inputs.uniform(1, num_outputs, 2, dtype=BF16, below=6e-3)

    def differences(output: torch.Tensor) -> list[str]:
        expected = int4_linear_reference(x, packed[-1:], factors[:, -64:].contiguous(), 64)
        return compare("the last outputs", output[:, -64:], expected, 3e-2)

    return Prepared(partial(int4_linear, x, packed, factors, num_outputs), differences)


def _grouped_linear(apart: int, num_groups: int, inputs: Inputs) -> Prepared:
    """Rows of the last group, whose weights lie beyond 2**31 numbers, and rows that lie far apart."""
    num_inputs, num_outputs = (64, 96) if num_groups < 8 else (4096, 4096)
    x = _rows_apart(apart, 3, num_inputs, BF16, inputs)
    weights = torch.empty(num_groups, num_outputs, num_inputs, dtype=BF16, device=inputs.device)
    if not inputs.is_empty:
        weights[-1] = inputs.normal(num_outputs, num_inputs, std=num_inputs**-0.5)
    y = _rows_apart(apart, 3, num_outputs, BF16, inputs)
    before = y.clone()
    of_rows = inputs.constant([num_groups - 1, -1, num_groups - 1], torch.int64)

    def launch() -> None:
        grouped_linear(x, weights, group_rows(of_rows, num_groups, 16), out=y)

    def differences(outputs: None) -> list[str]:
        only = of_rows.where(of_rows < 0, 0)
        groups = group_rows_reference(only, 1, 16)
        grouped_linear_reference(x, weights[-1:], groups, out=before)
        return compare("the sum", y, before, 5e-2)

    return Prepared(launch, differences)


def _adjust_logits(apart: int, num_slots: int, inputs: Inputs) -> Prepared:
    """Rows of logits far apart, and penalties in the last slots of a large table."""
    vocab_size = 1000 if num_slots < 100 else 2**17
    logits = _rows_apart(apart, 3, min(vocab_size, apart), torch.float32, inputs)
    counts = inputs.zeros(num_slots, vocab_size, dtype=torch.int32)
    is_in_prompt = inputs.zeros(num_slots, vocab_size, dtype=torch.bool)
    counts[-1, ::3], is_in_prompt[-2, ::5] = 2, True
    slots = inputs.constant([num_slots - 1, -1, num_slots - 2], torch.int64)
    ones = inputs.constant([1.0, 1.0, 1.0], torch.float32)
    factors = inputs.constant([1.5, 1.5, 2.0], torch.float32)
    penalties = Penalties(factors, ones * 0.5, ones * 0.25, counts, is_in_prompt, slots)
    before = logits.clone()

    def differences(outputs: None) -> list[str]:
        own = Penalties(
            factors, ones * 0.5, ones * 0.25, counts[-2:], is_in_prompt[-2:],
            inputs.constant([1, -1, 0], torch.int64),
        )  # fmt: skip
        adjust_logits_reference(before, ones, ones * 0, penalties=own)
        return compare("the logits", logits, before, 1e-5)

    return Prepared(
        partial(adjust_logits, logits, ones, ones * 0, penalties=penalties), differences
    )  # fmt: skip


def _gumbel_argmax(apart: int, inputs: Inputs) -> Prepared:
    logits = _rows_apart(apart, 3, 1000, torch.float32, inputs)
    is_drawn = inputs.constant([True, False, True], torch.bool)
    seeds = inputs.constant([1, 2, 3], torch.int64)

    def differences(tokens: torch.Tensor) -> list[str]:
        scores = gumbel_scores_reference(logits, is_drawn, seeds, seeds)
        lost = scores.max(-1).values - scores.gather(1, tokens[:, None])[:, 0]
        return [] if bool((lost <= SCORE_TOLERANCE).all()) else [f"the tokens, by {lost.tolist()}"]

    return Prepared(partial(gumbel_argmax, logits, is_drawn, seeds, seeds), differences)
