"""Tests of the paged attention kernel on mixed batches of prefill and decode."""

import pytest
import torch
import torch.nn.functional as F
from tests.support.engine.kernel_references import paged_attention_reference

from penstock_engine.kernels.kv_write import kv_write
from penstock_engine.kernels.paged_attention import paged_attention
from penstock_engine.kernels.paged_batch import PagedBatch


def integers(values: list[int], device: str) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def attend_all(  # type: ignore[no-untyped-def]
    attend, device: str, max_queries: int = 40, max_length: int = 90, **options: float
) -> torch.Tensor:
    """A chunk of 40 after 8 tokens, nothing of the second sequence, one token, and padding."""
    torch.manual_seed(0)
    cache = torch.randn(2, 12, 8, 2, 64, device=device)
    query = 4 * torch.randn(50, 6, 64, device=device)
    tables = torch.randperm(12, device=device).to(torch.int32)[None].repeat(4, 1)
    starts = integers([0, 40, 40, 41, 50], device)
    lengths = integers([48, 30, 90, 0], device)
    batch = PagedBatch(tables, starts, lengths, max_queries, max_length)
    result: torch.Tensor = attend(query, cache, batch, 0.1, **options)
    return result


@pytest.mark.parametrize("options", [{}, {"window": 9}, {"softcap": 2.0}])
def test_a_mixed_batch(options: dict[str, float], device: str) -> None:
    """The maximum lengths passed to the kernel only choose its launch; the results are the same."""
    expected = attend_all(paged_attention_reference, device, **options)
    assert not expected[41:].any()
    for max_queries, max_length in ((40, 90), (1, 1), (1000, 100_000)):
        actual = attend_all(paged_attention, device, max_queries, max_length, **options)
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"window": 9}, {"softcap": 2.0}])
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("broken", [(0, torch.nan), (1, torch.nan), (1, torch.inf)])
def test_a_token_that_is_not_a_number_harms_no_row_that_does_not_see_it(
    broken: tuple[int, float],
    cache_dtype: torch.dtype,
    options: dict[str, float],
    device: str,
) -> None:
    """Token 20 of a chunk of 30 has a NaN or infinite key or value in one of two heads. Its keys share
    a tile with those of other tokens."""
    torch.manual_seed(0)
    heads = torch.randn(2, 30, 2, 16, device=device)
    query = torch.randn(30, 4, 16, device=device)
    table = integers([2, 0, 3, 1], device)[None]
    batch = PagedBatch(table, integers([0, 30], device), integers([30], device), 30, 30)
    slots = (table[0].long()[:, None] * 8 + torch.arange(8, device=device)).flatten()[:30]

    def attended() -> torch.Tensor:
        cache = torch.zeros(2, 4, 8, 2, 16, device=device).to(cache_dtype)
        scales = None if cache_dtype == torch.float32 else torch.zeros(2, 4, 8, 2, device=device)
        kv_write(heads[0], heads[1], cache, slots, scales)
        return paged_attention(query, cache, batch, 0.3, kv_scales=scales, **options)

    expected = attended()
    heads[broken[0], 20, 1, 5] = broken[1]
    actual = attended()
    window = int(options.get("window", 30))
    sees = torch.tensor([20 <= row < 20 + window for row in range(30)], device=device)
    assert actual[sees, 2:].isnan().all()
    actual[sees, 2:] = expected[sees, 2:]
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("window", [0, 5])
def test_the_reference_is_scaled_dot_product_attention(window: int) -> None:
    torch.manual_seed(0)
    cache = torch.randn(2, 3, 8, 2, 16)
    query = torch.randn(10, 4, 16)
    starts, lengths = integers([0, 10], "cpu"), integers([20], "cpu")
    batch = PagedBatch(integers([2, 0, 1], "cpu")[None], starts, lengths, 10, 20)
    actual = paged_attention_reference(query, cache, batch, 0.3, window=window)
    keys, values = cache[:, [2, 0, 1]].flatten(1, 2)[:, :20].transpose(1, 2)
    mask = torch.ones(10, 20, dtype=torch.bool).tril(10)
    if window:
        mask &= ~torch.ones(10, 20, dtype=torch.bool).tril(10 - window)
    expected = F.scaled_dot_product_attention(
        query.transpose(0, 1), keys, values, attn_mask=mask, scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(actual, expected.transpose(0, 1))
