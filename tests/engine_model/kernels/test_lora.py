"""Tests of the grouped product with LoRA factors against one product per token."""

from typing import Any

import pytest
import torch
from tests.support.engine.kernel_references import group_rows_reference, grouped_linear_reference

from penstock_engine.kernels.group_rows import group_rows
from penstock_engine.kernels.grouped_linear import choose_block_rows, grouped_linear
from penstock_engine.lora import lora_product
from penstock_engine.lora.checkpoint import Factors

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("num_tokens", "num_adapters", "rank", "inputs", "outputs"),
    [(1, 1, 8, 64, 64), (9, 3, 1, 100, 30), (40, 4, 24, 1100, 150), (33, 33, 64, 70, 65)],
)
def test_equals_the_reference(
    num_tokens: int, num_adapters: int, rank: int, inputs: int, outputs: int,
    dtype: torch.dtype, device: str,
) -> None:  # fmt: skip
    """Added to some columns of a wider result, of which no others change."""
    torch.manual_seed(num_tokens)
    adapters = torch.randint(-1, num_adapters, (num_tokens,), device=device)
    x = torch.randn(num_tokens, inputs, device=device).to(dtype)
    a = (torch.randn(num_adapters, rank, inputs, device=device) / inputs**0.5).to(dtype)
    b = (torch.randn(num_adapters, outputs, rank, device=device) / rank**0.5).to(dtype)
    y = torch.randn(num_tokens, outputs + 20, device=device).to(dtype)
    expected, actual = y.clone(), y.clone()
    tokens = group_rows_reference(adapters, num_adapters, 16)
    expected_shrunk = grouped_linear_reference(x, a, tokens, out_dtype=torch.float32)
    grouped_linear_reference(expected_shrunk, b, tokens, out=expected[:, 10:-10])
    tokens = group_rows(adapters, num_adapters, choose_block_rows(num_tokens, num_adapters))
    shrunk = grouped_linear(x, a, tokens, out_dtype=torch.float32)
    grouped_linear(shrunk, b, tokens, out=actual[:, 10:-10])
    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(shrunk, expected_shrunk, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(actual, expected, **close)
    assert torch.equal(actual[adapters < 0], y[adapters < 0])


def test_the_reference_is_each_tokens_own_product() -> None:
    torch.manual_seed(0)
    adapters = torch.tensor([2, -1, 0, 2])
    x, a, b = torch.randn(4, 20), torch.randn(3, 5, 20), torch.randn(3, 7, 5)
    y = torch.zeros(4, 7)
    tokens = group_rows_reference(adapters, 3, 16)
    shrunk = grouped_linear_reference(x, a, tokens, out_dtype=torch.float32)
    grouped_linear_reference(shrunk, b, tokens, out=y)
    expected = torch.stack(
        [b[i] @ a[i] @ x[row] if i >= 0 else y[row] * 0 for row, i in enumerate(adapters)]
    )
    torch.testing.assert_close(y, expected)


def test_a_layer_that_no_adapter_changes_launches_nothing(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[torch.Size] = []

    def note(x: torch.Tensor, weights: torch.Tensor, groups: object, **options: object) -> Any:
        launched.append(weights.shape)
        return x.new_zeros(len(x), weights.shape[1])

    monkeypatch.setattr(lora_product, "grouped_linear", note)
    selection = lora_product.KernelRowSelection(device, num_slots=2, max_rank=4)
    selection.groups = group_rows(torch.zeros(3, dtype=torch.int32, device=device), 2, 16)
    product = selection.product([lora_product.Section("q", 0, 8), lora_product.Section("k", 8, 10)])
    x, y = torch.zeros(3, 6, device=device), torch.zeros(3, 10, device=device)
    product.add(y, x)
    assert not launched
    ones = torch.ones(8, 8, device=device)
    product.put(1, {"q": Factors(ones[:3, :6], ones[:, :3])})
    product.add(y, x)
    assert launched == [(2, 2 * 4, 6), (2, 8, 4), (2, 2, 4)]
    product.clear(1)
    product.add(y, x)
    assert len(launched) == 3
