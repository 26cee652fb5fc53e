"""Rows, drafts, grammars and what is told of probabilities."""

import math
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from penstock_engine.core.noise import uniform
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, SequenceOutput
from penstock_engine.sampling import sampler
from penstock_engine.sampling.sampler import sample
from penstock_engine.sampling.torch_sampling import keep_top, keep_top_in_order

About = Callable[..., ScheduledSequence]
LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])


def keep_top_on_device(logits: torch.Tensor, params: list[SamplingParams]) -> None:
    keep_top_in_order(logits, [i for i, p in enumerate(params) if p.top_k or p.top_p < 1], params)


def one(logits: torch.Tensor, sequence: ScheduledSequence) -> SequenceOutput:
    [result] = sample(logits.reshape(-1, logits.shape[-1]).clone(), [sequence]).results()
    return result


@pytest.mark.parametrize(
    ("wishes", "possible"),
    [
        ({"top_k": 1}, {0}),
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.01}, {0}),
        ({"top_p": 0.7}, {0, 1}),
        ({"min_p": 0.3}, {0, 1}),
        ({"min_p": 1.0}, {0}),
        ({"top_k": 3, "top_p": 0.95}, {0, 1, 2}),
        ({"top_k": 100}, {0, 1, 2, 3, 4}),
        ({"temperature": 0.0}, {0}),
        ({"temperature": 0.0, "logit_bias": {3: 100.0}}, {3}),
        ({"allowed_token_ids": frozenset({2, 4, 1000})}, {2, 4}),
        ({"bad_words": ((0,), (7, 1), (9, 2))}, {1, 3, 4}),
        ({"bad_words": ((0,), (8, 9, 2), (1, 8, 9, 3))}, {1, 3, 4}),
        ({"min_tokens": 3, "ending_token_ids": frozenset({0, 1, 1000})}, {2, 3, 4}),
        ({"min_tokens": 2, "ending_token_ids": frozenset({0, 1})}, {0, 1, 2, 3, 4}),
    ],
    ids=str,
)
def test_which_tokens_remain(about: About, wishes: dict[str, object], possible: set[int]) -> None:
    """Behind the output 8, 9."""
    base: dict[str, object] = {"temperature": 1.5, "output": [8, 9]}
    sequences = [about(**base | wishes | {"seed": seed}) for seed in range(2000)]
    results = sample(LOGITS.repeat(len(sequences), 1), sequences).results()
    assert {token for result in results for token in result.token_ids} == possible


def test_a_seed_draws_the_same_in_any_batch(about: About) -> None:
    """Noise depends on seed and position only: not on neighbours or order."""
    torch.manual_seed(0)
    logits = torch.randn(6, 50)
    sequences = [about(output=[1] * (3 * i), seed=i, temperature=0.5 + i) for i in range(6)]
    together = sample(logits.clone(), sequences).results()
    for row in (5, 3, 0):
        assert one(logits[row], sequences[row]) == together[row]


def test_positions_of_a_seed_draw_independently(about: About) -> None:
    """Else a seeded sequence would repeat itself."""
    sequences = [about(output=[1] * n, seed=3, temperature=3.0) for n in range(200)]
    results = sample(LOGITS.repeat(200, 1), sequences).results()
    assert {result.token_ids[0] for result in results} == {0, 1, 2, 3, 4}


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_the_noise_lies_in_the_unit_interval(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


@given(
    st.lists(st.integers(0, 4), max_size=5),
    st.integers(0, 2**63 - 1),
    st.floats(0.2, 3),
    st.booleans(),
)
@settings(deadline=None)
def test_drafts_change_no_token(
    drafts: list[int], seed: int, temperature: float, penalized: bool
) -> None:
    """With drafts, a step gives the tokens that steps without them would have given."""
    make = _about_without_fixture
    torch.manual_seed(seed % 1000)
    logits = torch.randn(len(drafts) + 1, 5)
    wishes = {"seed": seed, "temperature": temperature}
    wishes |= {"frequency_penalty": 1.5, "repetition_penalty": 1.3} if penalized else {}
    drafted = one(logits, make(drafts=drafts, **wishes)).token_ids
    output: list[int] = []
    for row in logits:
        [token] = one(row, make(output=output, **wishes)).token_ids
        output.append(token)
        if output != drafts[: len(output)]:
            break
    assert list(drafted) == output


def _about_without_fixture(
    *, output: list[int] | None = None, drafts: list[int] | None = None, **wishes: object
) -> ScheduledSequence:
    history, guesses = [0, *(output or [])], drafts or []
    return ScheduledSequence(
        "a", len(history) - 1, (history[-1], *guesses), (), True,
        SamplingParams(max_tokens=99, **wishes), history, 1, num_drafts=len(guesses),  # type: ignore[arg-type]
    )  # fmt: skip


class Ladder:
    """A grammar whose nth token is n, modulo five, and nothing else."""

    def __init__(self) -> None:
        self.height = 0
        self.is_finished = False

    def fill(self, bits: memoryview) -> None:
        bits[0] = 1 << self.height % 5

    def accept(self, token_id: int) -> bool:
        if token_id != self.height % 5:
            return False
        self.height += 1
        return True

    def rollback(self, num_tokens: int) -> None:
        self.height -= num_tokens


@pytest.mark.parametrize(
    ("drafts", "drawn"), [([], [0]), ([0, 1, 2], [0, 1, 2, 3]), ([0, 3, 4], [0, 1]), ([4], [0])]
)
def test_a_grammar_masks_every_row_and_stays_where_it_was(
    about: About, drafts: list[int], drawn: list[int]
) -> None:
    """Drafts are tried in the grammar and taken back; the scheduler moves it on."""
    ladder = Ladder()
    neighbour = about(temperature=0.0)
    sequence = about(drafts=drafts, constraint=ladder, seed=5)
    logits = LOGITS.repeat(2 + len(drafts), 1)
    first, second = sample(logits, [neighbour, sequence]).results()
    assert (first.token_ids, list(second.token_ids)) == ((0,), drawn)
    assert ladder.height == 0


@pytest.mark.parametrize("wishes", [{}, {"top_p": 0.5}, {"top_k": 2}, {"min_p": 0.1}], ids=str)
def test_nothing_left_to_draw_harms_no_neighbour(about: About, wishes: dict[str, float]) -> None:
    """Wishes that contradict each other, and logits that are no numbers."""
    contradiction = about(allowed_token_ids=frozenset({1}), bad_words=((1,),), seed=4, **wishes)
    logits = LOGITS.repeat(3, 1)
    logits[1] = math.nan
    sequences = [contradiction, about(seed=1, **wishes), about(temperature=0.0)]
    results = sample(logits, sequences).results()
    assert [result.token_ids for result in results] == [(), (), (0,)]
    assert [result.is_corrupt for result in results] == [False, True, False]


def test_no_request_can_make_the_model_look_corrupt(about: About) -> None:
    wishes = {"temperature": 1e-38, "repetition_penalty": 1e-30}
    result = one(3e38 * LOGITS.clamp(-1, 1), about(**wishes))
    assert not result.is_corrupt


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 3e38])
@pytest.mark.parametrize("wishes", [{"temperature": 1.0}, {"temperature": 1e-4, "top_p": 0.9}])
def test_no_token_is_drawn_from_what_is_no_number(
    about: About, value: float, wishes: dict[str, float]
) -> None:
    """Never one behind the vocabulary, and neighbours draw theirs. Large numbers are numbers."""
    logits = torch.zeros(2, 8)
    logits[0] = value
    logits[0, 3:] = -value if value == 3e38 else value
    wrong, right = sample(logits, [about(**wishes), about()]).results()
    assert all(token < 8 for token in wrong.token_ids)
    assert len(right.token_ids) == 1
    assert (wrong.is_corrupt, right.is_corrupt) == (value != 3e38, False)
    assert value == 3e38 or wrong.token_ids == ()


def test_logprobs_are_the_models_own(about: About) -> None:
    """Before temperature, penalties and bias; the drawn token's rank among them."""
    wishes: dict[str, object] = {"temperature": 0.1, "logit_bias": {3: 90.0}}
    result = one(LOGITS, about(logprobs=2, **wishes))
    expected = LOGITS.log_softmax(-1).tolist()
    [told] = result.logprobs
    assert (result.token_ids, told.token_id, told.rank) == ((3,), 3, 4)
    assert told.logprob == pytest.approx(expected[3], abs=1e-6)
    assert [token for token, _ in told.top] == [0, 1]
    assert [value for _, value in told.top] == pytest.approx(expected[:2], abs=1e-6)


def test_logprobs_are_told_for_each_right_draft_and_only_where_asked(about: About) -> None:
    asked = about(drafts=[0, 0, 3], temperature=0.0, logprobs=0)
    first, second = sample(LOGITS.repeat(5, 1), [asked, about()]).results()
    assert first.token_ids == (0, 0, 0)
    assert [told.token_id for told in first.logprobs] == [0, 0, 0]
    assert second.logprobs == ()


@pytest.mark.parametrize("rows_at_once", [1, 3, 7])
def test_rows_drawn_some_at_a_time_draw_the_same(
    about: About, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holds even if a part ends between the drafts of a sequence with a grammar and logprobs."""
    torch.manual_seed(0)
    sequences = [
        about(seed=1, drafts=[2, 3], logprobs=2),
        about(seed=2, top_p=0.8, top_k=7, drafts=[0]),
        about(temperature=0.0, logprobs=0, frequency_penalty=1.0),
        about(seed=4, constraint=Ladder()),
        about(seed=5, drafts=[0, 1, 4], constraint=Ladder(), logprobs=1),
        about(seed=6, min_p=0.2, logprobs=3),
    ]
    logits = torch.randn(sum(sequence.num_rows for sequence in sequences), 20)
    expected = sample(logits.clone(), sequences).results()
    monkeypatch.setattr(sampler, "rows_at_once", lambda vocab_size, device: rows_at_once)
    assert sample(logits, sequences).results() == expected


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999999])
@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("keep", [keep_top, keep_top_on_device])
def test_top_k_and_top_p_keep_what_a_sort_keeps(
    keep: Callable[[torch.Tensor, list[SamplingParams]], None], is_flat: bool, top_p: float
) -> None:
    """The row by row of a CPU and the order of a device, in one batch of rows of all kinds."""
    torch.manual_seed(0)
    logits = torch.randn(7, 5000) * (0.01 if is_flat else 5)
    logits[:, ::7] = -torch.inf
    wishes = [{"top_p": top_p}, {"top_k": 3}, {"top_k": 2000}, {"top_k": 40, "top_p": top_p}, {}]
    wishes += [{"top_k": 3000, "top_p": top_p}, {"top_k": 9000}]
    params = [SamplingParams(max_tokens=1, **wish) for wish in wishes]
    kept = logits.clone()
    keep(kept, params)
    for before, after, own in zip(logits, kept, params, strict=True):
        order = before.argsort(descending=True)[: own.top_k or 5000]
        shares = before[order].double().softmax(-1)
        is_kept = (shares.cumsum(-1) - shares < own.top_p) | (own.top_p == 1)
        expected = order[is_kept & (before[order] > -torch.inf)]
        actual = after.isfinite().nonzero()[:, 0]
        differing = sorted(set(actual.tolist()) ^ set(expected.tolist()))
        # The last tokens of a nucleus are decided by sums, which are rounded.
        assert before.double().softmax(-1)[differing].sum() < 2e-6 + is_flat * 4e-4
        assert own.top_p < 1 or not differing
        assert torch.equal(after[actual], before[actual])


@pytest.mark.parametrize("keep", [keep_top, keep_top_on_device])
def test_of_equal_tokens_no_more_are_kept_than_asked(
    keep: Callable[[torch.Tensor, list[SamplingParams]], None],
) -> None:
    logits = torch.zeros(3, 100)
    logits[:, 7] = 1
    wishes = [{"top_k": 5}, {"top_p": 0.5}, {"top_k": 40, "top_p": 0.25}]
    keep(logits, [SamplingParams(max_tokens=1, **wish) for wish in wishes])
    assert logits.isfinite().sum(1).tolist() == [5, 1 + 49, 1 + 8]
    assert logits[:, 7].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("top_p", "count"), [(0.2, 1), (0.25, 1), (0.3, 2), (0.5, 2), (0.6, 3), (0.75, 3), (0.8, 4)]
)
@pytest.mark.parametrize("keep", [keep_top, keep_top_on_device])
def test_a_nucleus_ends_with_the_token_that_reaches_top_p(
    keep: Callable[[torch.Tensor, list[SamplingParams]], None], top_p: float, count: int
) -> None:
    """Of four tokens with a quarter each, whose sums are exact."""
    logits = torch.zeros(1, 4)
    keep(logits, [SamplingParams(max_tokens=1, top_p=top_p)])
    assert logits.isfinite().sum().item() == count


@pytest.mark.parametrize("keep", [keep_top, keep_top_on_device])
def test_a_top_p_of_one_leaves_the_least_likely_token(
    keep: Callable[[torch.Tensor, list[SamplingParams]], None],
) -> None:
    """One whose weight does not show in the sum of all; top_k makes the row a limited one."""
    logits = torch.tensor([[0.0, -60.0, -80.0]])
    keep(logits, [SamplingParams(max_tokens=1, top_k=2, top_p=1.0)])
    assert logits.tolist() == [[0.0, -60.0, -torch.inf]]
