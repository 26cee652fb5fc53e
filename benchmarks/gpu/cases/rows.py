"""Cases of kernels that work on rows: norm, rotary embedding, gated activations, sampling."""

from collections.abc import Callable
from functools import partial

import torch
from benchmarks.gpu.cases.case import Kind, Prepared, Row, compare, compare_bits
from benchmarks.gpu.cases.inputs import PADDINGS, Inputs
from tests.support.engine.kernel_references import (
    adjust_logits_reference,
    gumbel_scores_reference,
    rope_reference,
)

from penstock_engine.kernels.adjust_logits import Penalties, adjust_logits
from penstock_engine.kernels.fused_add_norm import fused_add_norm
from penstock_engine.kernels.gumbel_argmax import gumbel_argmax
from penstock_engine.kernels.rope import rope
from penstock_engine.kernels.silu_mul import gelu_tanh_mul, silu_mul
from penstock_engine.kernels.torch_ops import ACTIVATIONS, add_norm, gate

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Tolerances of a norm or a gate, relative and absolute: a rounding, and the error of sums in float32.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
ROPE_TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
GATES = {"silu": silu_mul, "gelu_pytorch_tanh": gelu_tanh_mul}
# The most that a drawn token's score may be below the best, as logarithms are rounded differently.
SCORE_TOLERANCE = 1e-3


def _add_norm(row: Row, inputs: Inputs) -> Prepared:
    shape, dtype, offset = row["shape"], row["dtype"], row["offset"]
    x = inputs.normal(*shape, dtype=dtype, padding=row["padding"])
    weight = inputs.normal(shape[-1], dtype=dtype)
    residual = inputs.normal(*shape, dtype=dtype) if row["is_added"] else None
    before = None if residual is None else residual.clone()

    def launch() -> torch.Tensor:
        return fused_add_norm(x, residual, weight, 1e-6, weight_offset=offset)

    def differences(output: torch.Tensor) -> list[str]:
        expected = add_norm(x, before, weight, 1e-6, weight_offset=offset)
        wrong = compare("the norm", output, expected, TOLERANCE[dtype])
        if residual is not None and before is not None:
            wrong += compare("the sum", residual, before, TOLERANCE[dtype])
        return wrong

    return Prepared(launch, differences)


def _rope(row: Row, inputs: Inputs) -> Prepared:
    """Queries and keys are rotated in place within a joint projection, whose values stay unchanged."""
    (heads, kv_heads, head_dim, rotary_dim), dtype = row["heads"], row["dtype"]
    projected = inputs.normal(
        row["tokens"], heads + 2 * kv_heads, head_dim, dtype=dtype, padding=row["padding"]
    )
    angles = dtype if row["angles"] == "same" else torch.float32
    cos, sin = (
        inputs.normal(row["tokens"], rotary_dim, dtype=angles)[:, rotary_dim // 2 :]
        for _ in range(2)
    )
    before = projected.clone()

    def rotate(turn: Callable[..., None], rows: torch.Tensor) -> None:
        turn(rows[:, :heads], rows[:, heads : heads + kv_heads], cos, sin)

    def differences(outputs: None) -> list[str]:
        expected = before.clone()
        rotate(rope_reference, expected)
        is_rotated = torch.zeros_like(before, dtype=torch.bool)
        is_rotated[:, : heads + kv_heads, :rotary_dim] = True
        return [
            *compare("the rotated heads", projected, expected, ROPE_TOLERANCE[dtype]),
            *compare_bits("what is not rotated", projected[~is_rotated], before[~is_rotated]),
        ]

    return Prepared(partial(rotate, rope, projected), differences)


def _gate(row: Row, inputs: Inputs) -> Prepared:
    """Includes gates of 200 and -200, far in both tails of the activation."""
    dtype, (num_rows, size) = row["dtype"], row["shape"]
    gate_up = inputs.normal(num_rows, 2 * size, dtype=dtype, std=5.0)
    gate_up[0, 0], gate_up[-1, size // 2] = 200.0, -200.0

    def differences(output: torch.Tensor) -> list[str]:
        expected = gate(ACTIVATIONS[row["activation"]], gate_up.float()).to(dtype)
        return compare("the gated rows", output, expected, TOLERANCE[dtype])

    return Prepared(partial(GATES[row["activation"]], gate_up), differences)


def _adjust_logits(row: Row, inputs: Inputs) -> Prepared:
    num_rows, vocab_size = row["rows"], row["vocabulary"]
    logits = inputs.normal(num_rows, vocab_size, std=4.0, padding=row["padding"])
    before = logits.clone()
    penalties = _penalties(num_rows, vocab_size, inputs) if row["has_penalties"] else None
    num_words = -(-vocab_size // 32) + 1
    allowed = None
    if row["has_grammar"]:
        allowed = inputs.integers(-(2**31), 2**31 - 1, num_rows, num_words, dtype=torch.int32)
        allowed[:, 0] |= 1
    temperatures = _in_turn([1.0, 0.0, 0.5, 2.0, 1e-3], num_rows, inputs)
    min_ps = _in_turn([0.0, 0.1, 0.01, 1.0, 0.0, 0.3], num_rows, inputs)

    def launch() -> None:
        adjust_logits(logits, temperatures, min_ps, penalties=penalties, allowed=allowed)

    def differences(outputs: None) -> list[str]:
        adjust_logits_reference(before, temperatures, min_ps, penalties=penalties, allowed=allowed)
        # A logit at the floor of min-p may fall on either side of it.
        is_edge = before.isinf() != logits.isinf()
        return compare(
            "the logits", logits.masked_fill(is_edge, 0.0), before.masked_fill(is_edge, 0.0), 1e-5
        ) + ([f"{int(is_edge.sum())} more or fewer excluded"] if is_edge.sum() > num_rows else [])

    return Prepared(launch, differences)


def _penalties(num_rows: int, vocab_size: int, inputs: Inputs) -> Penalties:
    """Penalties of rows in slots of a larger table; every third row has none."""
    num_slots = num_rows + 2
    slots = inputs.constant(
        [-1 if r % 3 == 2 else (r * 5 + 1) % num_slots for r in range(num_rows)], torch.int64
    )
    return Penalties(
        _in_turn([1.3, 1.0, 0.7, 2.0], num_rows, inputs),
        _in_turn([0.5, 0.0, 1.0, -0.3, 1.0], num_rows, inputs),
        _in_turn([0.0, 0.2, 0.0, 1.0, 0.0], num_rows, inputs),
        inputs.integers(0, 3, num_slots, vocab_size, dtype=torch.int32),
        inputs.integers(0, 2, num_slots, vocab_size, dtype=torch.uint8).view(torch.bool),
        slots,
    )


def _in_turn(values: list[float], num_rows: int, inputs: Inputs) -> torch.Tensor:
    return inputs.constant([values[r % len(values)] for r in range(num_rows)], torch.float32)


def _gumbel_argmax(row: Row, inputs: Inputs) -> Prepared:
    """Rows with excluded tokens, equal logits, and the smallest and largest seeds and positions."""
    num_rows, vocab_size = row["rows"], row["vocabulary"]
    logits = inputs.normal(num_rows, vocab_size, std=3.0, padding=row["padding"])
    logits[1::7, 1 + vocab_size // 2 :] = -torch.inf
    logits[2::5] = 1.0
    is_drawn = inputs.constant([r % 3 != 1 for r in range(num_rows)], torch.bool)
    numbers = [0, -5, 2**62 + 12345, 1, 7, -(2**63)]
    seeds = inputs.constant([numbers[r % 6] for r in range(num_rows)], torch.int64)
    places = [0, 1, 2**32 - 1, 3]
    positions = inputs.constant([places[r % 4] for r in range(num_rows)], torch.int64)

    def differences(tokens: torch.Tensor) -> list[str]:
        scores = gumbel_scores_reference(logits, is_drawn, seeds, positions)
        best, expected = scores.max(-1).values, scores.argmax(-1)
        if tokens.dtype != torch.int64 or not bool(((tokens >= 0) & (tokens < vocab_size)).all()):
            return ["the tokens are not in the vocabulary"]
        lost = best - scores.gather(1, tokens[:, None])[:, 0]
        is_wrong = torch.where(is_drawn, lost > SCORE_TOLERANCE, tokens != expected)
        rows = is_wrong.nonzero().flatten().tolist()
        return [f"the tokens of rows {rows[:5]}"] if rows else []

    return Prepared(partial(gumbel_argmax, logits, is_drawn, seeds, positions), differences)


def row_kinds(*, is_small: bool) -> list[Kind]:
    """The kinds of cases of this module. is_small: without the sizes that take the interpreter long."""
    large = () if is_small else (True,)
    shapes = [(1, 8), (33, 96), (3, 5, 80), (7, 3, 128), (2, 5000)]
    shapes += [(4096, 4096), (1000, 32, 128), (3, 16_384)] if large else []
    heads = [(1, 1, 64, 64), (6, 2, 80, 80), (7, 1, 96, 48), (32, 8, 128, 34)]
    heads += [(64, 8, 128, 128), (16, 16, 256, 256)] if large else []
    gates = [(1, 1), (3, 100), (2, 1024), (5, 1025)] + ([(4096, 14_336)] if large else [])
    vocabularies = (1, 33, 2048, 5003) + ((151_936,) if large else ())
    sampling = {
        "rows": (1, 5, *(256 for _ in large)), "vocabulary": vocabularies, "padding": PADDINGS
    }  # fmt: skip
    tokens = (1, 5, *(2048 for _ in large))
    return [
        Kind("fused_add_norm",
             {"shape": tuple(shapes), "dtype": DTYPES, "is_added": (False, True),
              "offset": (0.0, 1.0), "padding": PADDINGS}, _add_norm),
        Kind("rope",
             {"heads": tuple(heads), "dtype": DTYPES, "tokens": tokens,
              "angles": ("same", "float32"), "padding": PADDINGS}, _rope),
        Kind("gate", {"shape": tuple(gates), "dtype": DTYPES, "activation": tuple(GATES)}, _gate),
        Kind("adjust_logits",
             sampling | {"has_penalties": (False, True), "has_grammar": (False, True)},
             _adjust_logits),
        Kind("gumbel_argmax", sampling, _gumbel_argmax),
    ]  # fmt: skip
