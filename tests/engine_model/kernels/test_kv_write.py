import pytest
import torch

from penstock_engine.kernels.kv_write import kv_write, kv_write_reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("num_tokens", "num_kv_heads", "head_dim", "block_size"),
    [(1, 1, 64, 16), (5, 2, 80, 8), (33, 3, 128, 32), (7, 4, 16, 16)],
)
def test_equals_the_reference(
    num_tokens: int, num_kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype,
    device: str,
) -> None:  # fmt: skip
    """Bit for bit, from rows cut out of a wider product, and nothing else is touched."""
    torch.manual_seed(num_tokens)
    heads = torch.randn(num_tokens, 3 * num_kv_heads, head_dim, device=device).to(dtype)
    keys, values = heads[:, num_kv_heads : 2 * num_kv_heads], heads[:, 2 * num_kv_heads :]
    cache = torch.randn(2, 9, block_size, num_kv_heads, head_dim, device=device).to(dtype)
    slots = torch.randperm(9 * block_size, device=device)[:num_tokens]
    expected = cache.clone()
    kv_write_reference(keys, values, expected, slots)
    kv_write(keys, values, cache, slots)
    assert torch.equal(cache, expected)
