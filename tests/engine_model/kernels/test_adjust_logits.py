"""Tests of the kernel that applies penalties, biases and masks to logits."""

import pytest
import torch
from tests.support.engine.kernel_references import adjust_logits_reference

from penstock_engine.kernels.adjust_logits import Penalties, adjust_logits


def some_penalties(vocab_size: int, device: str) -> Penalties:
    """Five rows, of which two have none."""
    counts = torch.randint(0, 3, (7, vocab_size), dtype=torch.int32, device=device)
    is_in_prompt = torch.rand(7, vocab_size, device=device) < 0.2
    repetition, presence, frequency = torch.tensor(
        [[1.3, 1.0, 0.7, 2.0, 1.0], [0.5, 0.0, 1.0, -0.3, 1.0], [0.0, 0.2, 0.0, 1.0, 0.0]],
        device=device,
    )
    slots = torch.tensor([3, -1, 0, 6, -1], device=device)
    return Penalties(repetition, presence, frequency, counts, is_in_prompt, slots)


@pytest.mark.parametrize("vocab_size", [1, 33, 2048, 5003])
@pytest.mark.parametrize("has_penalties", [False, True])
@pytest.mark.parametrize("has_grammar", [False, True])
def test_equals_the_reference(
    vocab_size: int, has_penalties: bool, has_grammar: bool, device: str
) -> None:
    torch.manual_seed(vocab_size)
    logits = 4 * torch.randn(5, 2 * vocab_size, device=device)
    penalties = some_penalties(vocab_size, device) if has_penalties else None
    words = (5, -(-vocab_size // 32) + 1)
    allowed = torch.randint(-(2**31), 2**31, words, dtype=torch.int32, device=device)
    allowed[:, 0] |= 1
    temperatures = torch.tensor([1.0, 0.0, 0.5, 2.0, 1e-3], device=device)
    min_ps = torch.tensor([0.0, 0.1, 0.01, 1.0, 0.0], device=device)
    expected, actual = logits.clone(), logits.clone()
    for adjust, rows in ((adjust_logits_reference, expected), (adjust_logits, actual)):
        adjust(
            rows[:, :vocab_size], temperatures, min_ps,
            penalties=penalties, allowed=allowed if has_grammar else None,
        )  # fmt: skip
    torch.testing.assert_close(actual, expected)
    assert torch.equal(actual[:, vocab_size:], logits[:, vocab_size:])


def test_what_each_setting_does() -> None:
    """A row, token by token: [seen twice, in the prompt, both, neither], and one excluded."""
    logits = torch.tensor([[2.0, 2.0, -2.0, 1.0, 9.0]])
    penalties = Penalties(
        *torch.tensor([[2.0], [0.5], [0.25]]),
        torch.tensor([[2, 0, 2, 0, 0]], dtype=torch.int32),
        torch.tensor([[False, True, True, False, False]]),
        torch.tensor([0]),
    )
    allowed = torch.tensor([[0b01111]], dtype=torch.int32)
    adjust_logits_reference(
        logits, torch.tensor([0.5]), torch.tensor([0.01]), penalties=penalties, allowed=allowed
    )
    # Halved if seen, less 0.5 and twice 0.25 if generated, then divided by 0.5; the least likely
    # is less than 0.01 times as likely as the likeliest.
    assert logits.tolist() == [[0.0, 2.0, -torch.inf, 2.0, -torch.inf]]
