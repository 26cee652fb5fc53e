"""The sampler's kernel path against its torch path: the same tokens remain, greedy ones are equal."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from benchmarks.engine import sampling_distribution as campaign
from tests.support.engine.kernel_references import gumbel_argmax_reference

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.sampling.grammar import GrammarMasks, grammar_masks
from penstock_engine.sampling.kernel_sampling import sample_with_kernels
from penstock_engine.sampling.request_state import RequestState
from penstock_engine.sampling.row import Row, rows_of
from penstock_engine.sampling.sampler import sample
from penstock_engine.sampling.torch_sampling import sample_with_torch

Computing = Callable[[str], AbstractContextManager[None]]
VOCAB_SIZE = 40
PROMPT, OUTPUT = [3, 4, 9], [5, 5, 4]
WISHES: list[dict[str, float]] = [
    {},
    {"repetition_penalty": 1.7},
    {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    {"repetition_penalty": 0.3, "frequency_penalty": -1.0},
]


class OddTokens:
    """A grammar of odd tokens."""

    is_finished = False

    def fill(self, bits: memoryview) -> None:
        bits[:] = b"\xaa" * len(bits)

    def accept(self, token_id: int) -> bool:
        return token_id % 2 == 1

    def rollback(self, num_tokens: int) -> None:
        pass


def row(wishes: dict[str, float], constraint: OddTokens | None = None) -> Row:
    history = PROMPT + OUTPUT
    sequence = ScheduledSequence(
        "a", len(history) - 1, (history[-1],), (), True, SamplingParams(max_tokens=9, **wishes),
        history, len(PROMPT), constraint=constraint,
    )  # fmt: skip
    return next(rows_of(sequence, RequestState(sequence, VOCAB_SIZE, "cpu")))


def grammar_of(rows: list[Row]) -> GrammarMasks | None:
    return grammar_masks([row.sequence for row in rows], VOCAB_SIZE)


def test_greedy_rows_choose_the_same(device: str) -> None:
    """Penalties and grammars in some rows do not change the rows between them."""
    torch.manual_seed(0)
    greedy = [
        row({"temperature": 0.0} | wishes, constraint)
        for wishes in WISHES
        for constraint in (None, OddTokens())
    ]
    rows = [*greedy, row({"seed": 1}), *greedy]
    for logits in torch.randn(5, len(rows), VOCAB_SIZE, device=device):
        logits[:, 4:6] += 2  # what was said is likely again
        allowed = grammar_of(rows)
        expected = sample_with_torch(logits.clone(), rows, allowed).tolist()
        actual = sample_with_kernels(logits, rows, allowed).tolist()
        places = [i for i, row in enumerate(rows) if row.sampling.is_greedy]
        assert [actual[i] for i in places] == [expected[i] for i in places]
        assert len(set(actual)) > 1


@pytest.mark.parametrize(
    ("wishes", "possible"),
    [
        ({"top_k": 1}, {0}),
        ({"top_k": 2, "temperature": 9.0}, {0, 1}),
        ({"top_p": 0.7}, {0, 1}),
        ({"min_p": 0.3}, {0, 1}),
        ({"top_k": 3, "min_p": 0.3}, {0, 1}),
        ({"temperature": 0.0, "top_k": 3}, {0}),
        ({"temperature": 9.0}, {0, 1, 2, 3, 4}),
    ],
    ids=str,
)
def test_which_tokens_remain(wishes: dict[str, float], possible: set[int], device: str) -> None:
    rows = [row(wishes | {"seed": seed}) for seed in range(60)]
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, -2.0]], device=device).repeat(len(rows), 1)
    assert set(sample_with_kernels(logits, rows, None).tolist()) == possible


def test_nothing_left_to_draw_harms_no_neighbor(device: str) -> None:
    rows = [row({"seed": seed}) for seed in (1, 2, 3, 2**64 - 1)]
    logits = torch.zeros(len(rows), VOCAB_SIZE, device=device)
    logits[0], logits[2] = -torch.inf, torch.nan
    tokens = sample_with_kernels(logits, rows, None).tolist()
    assert [token < 0 for token in tokens] == [True, False, True, False]


def test_a_seed_draws_the_same_in_any_batch(device: str) -> None:
    torch.manual_seed(0)
    rows = [row({"seed": seed, "temperature": 3.0, "top_p": 0.9}) for seed in range(6)]
    logits = torch.randn(6, VOCAB_SIZE, device=device)
    together = sample_with_kernels(logits.clone(), rows, None).tolist()
    alone = [
        sample_with_kernels(logits[i : i + 1].clone(), rows[i : i + 1], None)[0] for i in range(6)
    ]
    assert alone == together
    assert any(a != b for a, b in pairwise(together))


def test_every_setting_draws_what_the_exact_distribution_and_the_noise_say(
    computing: Computing, device: str
) -> None:
    """All settings of a request in one batch, greedy and drawn rows mixed, with drafts and without.

    The distribution is worked out token by token in plain Python (sampling_distribution.exact), and
    the noise in torch; with it, the token of a row is determined.
    """
    settings = campaign.make_settings(240, seed=7)
    for index in range(0, len(settings), 3):
        wishes = settings[index].wishes | {"temperature": (0.0, 1e-6)[index % 2]}
        settings[index] = replace(settings[index], wishes=wishes)
    sequences, logits, expected = [], [], []
    for seed, setting in enumerate(settings):
        drafts = (3,) if setting.with_draft else ()
        sequence = campaign._scheduled(setting, drafts, seed)
        sequences.append(sequence)
        for row in range(1 + len(drafts)):
            logits.append(setting.logits[row])
            expected.append(expected_token(setting, drafts[:row], seed, device))
    with computing("triton"):
        draws = sample(torch.tensor(logits, device=device), sequences)
    assert draws.tokens.tolist() == expected


def expected_token(
    setting: campaign.Setting, drafts: tuple[int, ...], seed: int, device: str
) -> int:
    sampling, output = setting.sampling, [*setting.output, *drafts]
    logits = setting.logits[len(drafts)]
    if sampling.is_greedy:
        whole = replace(sampling, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
        shares = campaign.exact(logits, whole, setting.prompt, output)
        return max(range(len(shares)), key=shares.__getitem__)
    shares = campaign.exact(logits, sampling, setting.prompt, output)
    position = len(setting.prompt) + len(output)
    [token] = gumbel_argmax_reference(
        torch.tensor([shares], device=device).log(),
        torch.tensor([True], device=device),
        torch.tensor([seed], device=device),
        torch.tensor([position], device=device),
    ).tolist()
    assert isinstance(token, int)
    return token
