import pytest
import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.layers.sampler import sample

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])


def params(**values: object) -> SamplingParams:
    return SamplingParams(max_tokens=1, **values)  # type: ignore[arg-type]


def draw(sampling: SamplingParams, num_draws: int, *, seed: int = 0) -> torch.Tensor:
    """How often each token came out of one batch."""
    tokens = sample(
        LOGITS.repeat(num_draws, 1),
        [sampling] * num_draws,
        list(range(num_draws)),
        [frozenset()] * num_draws,
        torch.Generator().manual_seed(seed),
    )
    return torch.bincount(torch.tensor(tokens), minlength=len(LOGITS))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", [None, 7])
def test_frequencies_follow_the_distribution(temperature: float, seed: int | None) -> None:
    """Within five standard deviations, with a seed of its own at each position or without."""
    counts = draw(params(temperature=temperature, seed=seed), 5000)
    expected = (LOGITS / temperature).softmax(-1)
    tolerance = 5 * (expected * (1 - expected) / 5000).sqrt() + 1e-3
    assert torch.all((counts / 5000 - expected).abs() < tolerance)


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        ({"top_k": 1}, {0}),
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.01}, {0}),
        ({"top_p": 0.7}, {0, 1}),
        ({"min_p": 0.3}, {0, 1}),
        ({"min_p": 1.0}, {0}),
        ({"top_k": 3, "top_p": 0.95}, {0, 1, 2}),
        ({"top_k": 100}, {0, 1, 2, 3, 4}),
    ],
    ids=str,
)
def test_which_tokens_remain(sampling: dict[str, float], possible: set[int]) -> None:
    counts = draw(params(temperature=1.5, **sampling), 2000)
    assert set(counts.nonzero().flatten().tolist()) == possible


def test_a_seed_draws_the_same_in_any_batch() -> None:
    """Noise depends on seed and position only: not on neighbours, order or the engine's state."""
    torch.manual_seed(0)
    logits = torch.randn(6, 50)
    sampling = [params(seed=i) if i % 2 else params(temperature=0.5 * i) for i in range(6)]
    positions = [10 * i for i in range(6)]

    def run(rows: list[int], engine_seed: int) -> dict[int, int]:
        tokens = sample(
            logits[rows],
            [sampling[row] for row in rows],
            [positions[row] for row in rows],
            [frozenset()] * len(rows),
            torch.Generator().manual_seed(engine_seed),
        )
        return dict(zip(rows, tokens, strict=True))

    together, apart = run([0, 1, 2, 3, 4, 5], 0), run([5, 3, 0, 1], 99)
    for row in (0, 1, 3, 5):  # row 0 is greedy
        assert together[row] == apart[row]


def test_positions_of_a_seed_draw_independently() -> None:
    """Else a seeded sequence would repeat itself."""
    assert len(draw(params(seed=3, temperature=3.0), 200).nonzero()) == 5


def test_temperature_zero_takes_the_best() -> None:
    assert draw(params(temperature=0.0), 10).tolist() == [10, 0, 0, 0, 0]


def test_forbidden_tokens_never_come() -> None:
    """Greedy or drawn; ids outside the vocabulary forbid nothing."""
    for temperature in (0.0, 1.0):
        [token] = sample(
            LOGITS[None].clone(),
            [params(temperature=temperature)],
            [0],
            [frozenset({0, 1, 2, 4, 1000})],
            torch.Generator(),
        )
        assert token == 3
