"""The sampler: sampling parameters, seeds, drafts, grammars and log-probabilities of a batch."""

import math
from collections.abc import Callable, Sequence

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

MakeScheduled = Callable[..., ScheduledSequence]
LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])


def keep_top_on_device(logits: torch.Tensor, params: list[SamplingParams]) -> None:
    keep_top_in_order(logits, [i for i, p in enumerate(params) if p.top_k or p.top_p < 1], params)


def sample_one(logits: torch.Tensor, sequence: ScheduledSequence) -> SequenceOutput:
    [result] = sample(logits.reshape(-1, logits.shape[-1]).clone(), [sequence]).results()
    return result


@pytest.mark.parametrize(
    ("parameters", "possible"),
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
def test_parameters_limit_the_possible_tokens(
    scheduled: MakeScheduled, parameters: dict[str, object], possible: set[int]
) -> None:
    """The output so far is 8, 9. All possible tokens occur among 2,000 samples."""
    base: dict[str, object] = {"temperature": 1.5, "output": [8, 9]}
    sequences = [scheduled(**base | parameters | {"seed": seed}) for seed in range(2000)]
    results = sample(LOGITS.repeat(len(sequences), 1), sequences).results()
    assert {token for result in results for token in result.token_ids} == possible


def test_a_seed_samples_the_same_tokens_in_any_batch(scheduled: MakeScheduled) -> None:
    """Random numbers depend only on seed and position, not on other rows or their order."""
    torch.manual_seed(0)
    logits = torch.randn(6, 50)
    sequences = [scheduled(output=[1] * (3 * i), seed=i, temperature=0.5 + i) for i in range(6)]
    together = sample(logits.clone(), sequences).results()
    for row in (5, 3, 0):
        assert sample_one(logits[row], sequences[row]) == together[row]


def test_positions_of_a_seed_have_independent_random_numbers(scheduled: MakeScheduled) -> None:
    """Otherwise a seeded sequence would repeat itself."""
    sequences = [scheduled(output=[1] * n, seed=3, temperature=3.0) for n in range(200)]
    results = sample(LOGITS.repeat(200, 1), sequences).results()
    assert {result.token_ids[0] for result in results} == {0, 1, 2, 3, 4}


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_random_numbers_are_in_the_unit_interval(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


@given(
    st.lists(st.integers(0, 4), max_size=5),
    st.integers(0, 2**63 - 1),
    st.floats(0.2, 3),
    st.booleans(),
)
@settings(deadline=None)
def test_drafts_do_not_change_the_sampled_tokens(
    drafts: list[int], seed: int, temperature: float, has_penalties: bool
) -> None:
    """A step with drafts returns the tokens that steps without drafts would return."""
    torch.manual_seed(seed % 1000)
    logits = torch.randn(len(drafts) + 1, 5)
    parameters = {"seed": seed, "temperature": temperature}
    parameters |= {"frequency_penalty": 1.5, "repetition_penalty": 1.3} if has_penalties else {}
    with_drafts = sample_one(logits, make_scheduled(drafts=drafts, **parameters)).token_ids
    output: list[int] = []
    for row in logits:
        [token] = sample_one(row, make_scheduled(output=output, **parameters)).token_ids
        output.append(token)
        if output != drafts[: len(output)]:
            break
    assert list(with_drafts) == output


def make_scheduled(
    *, output: Sequence[int] = (), drafts: Sequence[int] = (), **parameters: object
) -> ScheduledSequence:
    """Returns a sequence without the fixture, which a Hypothesis test cannot use."""
    history = [0, *output]
    return ScheduledSequence(
        "a", len(history) - 1, (history[-1], *drafts), (), True,
        SamplingParams(max_tokens=99, **parameters), history, 1, num_drafts=len(drafts),  # type: ignore[arg-type]
    )  # fmt: skip


class ModuloConstraint:
    """A constraint that allows as its nth token only n modulo five."""

    def __init__(self) -> None:
        self.num_accepted = 0
        self.is_finished = False

    def fill(self, bits: memoryview) -> None:
        bits[0] = 1 << self.num_accepted % 5

    def accept(self, token_id: int) -> bool:
        if token_id != self.num_accepted % 5:
            return False
        self.num_accepted += 1
        return True

    def rollback(self, num_tokens: int) -> None:
        self.num_accepted -= num_tokens


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [([], [0]), ([0, 1, 2], [0, 1, 2, 3]), ([0, 3, 4], [0, 1]), ([4], [0])],
)
def test_a_grammar_masks_each_row_and_keeps_its_state(
    scheduled: MakeScheduled, drafts: list[int], expected: list[int]
) -> None:
    """The sampler rolls drafts back. The scheduler advances the grammar."""
    constraint = ModuloConstraint()
    neighbor = scheduled(temperature=0.0)
    sequence = scheduled(drafts=drafts, constraint=constraint, seed=5)
    logits = LOGITS.repeat(2 + len(drafts), 1)
    first, second = sample(logits, [neighbor, sequence]).results()
    assert (first.token_ids, list(second.token_ids)) == ((0,), expected)
    assert constraint.num_accepted == 0


@pytest.mark.parametrize("parameters", [{}, {"top_p": 0.5}, {"top_k": 2}, {"min_p": 0.1}], ids=str)
def test_a_row_without_possible_tokens_does_not_affect_others(
    scheduled: MakeScheduled, parameters: dict[str, float]
) -> None:
    """The first row has contradicting parameters, the second NaN logits."""
    contradiction = scheduled(
        allowed_token_ids=frozenset({1}), bad_words=((1,),), seed=4, **parameters
    )
    logits = LOGITS.repeat(3, 1)
    logits[1] = math.nan
    sequences = [contradiction, scheduled(seed=1, **parameters), scheduled(temperature=0.0)]
    results = sample(logits, sequences).results()
    assert [result.token_ids for result in results] == [(), (), (0,)]
    assert [result.is_corrupt for result in results] == [False, True, False]


def test_extreme_parameters_do_not_count_as_corrupt_logits(scheduled: MakeScheduled) -> None:
    parameters = {"temperature": 1e-38, "repetition_penalty": 1e-30}
    result = sample_one(3e38 * LOGITS.clamp(-1, 1), scheduled(**parameters))
    assert not result.is_corrupt


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 3e38])
@pytest.mark.parametrize("parameters", [{"temperature": 1.0}, {"temperature": 1e-4, "top_p": 0.9}])
def test_no_token_is_sampled_from_logits_that_are_not_finite(
    scheduled: MakeScheduled, value: float, parameters: dict[str, float]
) -> None:
    """The other row samples its token, and no token is beyond the vocabulary. 3e38 is valid."""
    logits = torch.zeros(2, 8)
    logits[0] = value
    logits[0, 3:] = -value if value == 3e38 else value
    wrong, right = sample(logits, [scheduled(**parameters), scheduled()]).results()
    assert all(token < 8 for token in wrong.token_ids)
    assert len(right.token_ids) == 1
    assert (wrong.is_corrupt, right.is_corrupt) == (value != 3e38, False)
    assert value == 3e38 or wrong.token_ids == ()


def test_logprobs_ignore_temperature_and_bias(scheduled: MakeScheduled) -> None:
    """The rank of the sampled token is also that of the model's own logits."""
    parameters: dict[str, object] = {"temperature": 0.1, "logit_bias": {3: 90.0}}
    result = sample_one(LOGITS, scheduled(logprobs=2, **parameters))
    expected = LOGITS.log_softmax(-1).tolist()
    [token] = result.logprobs
    assert (result.token_ids, token.token_id, token.rank) == ((3,), 3, 4)
    assert token.logprob == pytest.approx(expected[3], abs=1e-6)
    assert [token_id for token_id, _ in token.top] == [0, 1]
    assert [value for _, value in token.top] == pytest.approx(expected[:2], abs=1e-6)


def test_logprobs_exist_for_accepted_drafts_of_requests_with_logprobs(
    scheduled: MakeScheduled,
) -> None:
    requested = scheduled(drafts=[0, 0, 3], temperature=0.0, logprobs=0)
    first, second = sample(LOGITS.repeat(5, 1), [requested, scheduled()]).results()
    assert first.token_ids == (0, 0, 0)
    assert [token.token_id for token in first.logprobs] == [0, 0, 0]
    assert second.logprobs == ()


@pytest.mark.parametrize("rows_at_once", [1, 3, 7])
def test_sampling_in_parts_gives_the_same_results(
    scheduled: MakeScheduled, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts may end between the drafts of a sequence with grammar and logprobs."""
    torch.manual_seed(0)
    sequences = [
        scheduled(seed=1, drafts=[2, 3], logprobs=2),
        scheduled(seed=2, top_p=0.8, top_k=7, drafts=[0]),
        scheduled(temperature=0.0, logprobs=0, frequency_penalty=1.0),
        scheduled(seed=4, constraint=ModuloConstraint()),
        scheduled(seed=5, drafts=[0, 1, 4], constraint=ModuloConstraint(), logprobs=1),
        scheduled(seed=6, min_p=0.2, logprobs=3),
    ]
    logits = torch.randn(sum(sequence.num_rows for sequence in sequences), 20)
    expected = sample(logits.clone(), sequences).results()
    monkeypatch.setattr(sampler, "rows_at_once", lambda vocab_size, device: rows_at_once)
    assert sample(logits, sequences).results() == expected


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999999])
@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("keep", [keep_top, keep_top_on_device])
def test_top_k_and_top_p_equal_a_full_sort(
    keep: Callable[[torch.Tensor, list[SamplingParams]], None], is_flat: bool, top_p: float
) -> None:
    """Both implementations, for CPU and for devices, are compared in a batch of all kinds of rows."""
    torch.manual_seed(0)
    logits = torch.randn(7, 5000) * (0.01 if is_flat else 5)
    logits[:, ::7] = -torch.inf
    parameters = [
        {"top_p": top_p},
        {"top_k": 3},
        {"top_k": 2000},
        {"top_k": 40, "top_p": top_p},
        {},
    ]
    parameters += [{"top_k": 3000, "top_p": top_p}, {"top_k": 9000}]
    params = [SamplingParams(max_tokens=1, **row_parameters) for row_parameters in parameters]
    kept = logits.clone()
    keep(kept, params)
    for before, after, row_params in zip(logits, kept, params, strict=True):
        order = before.argsort(descending=True)[: row_params.top_k or 5000]
        probabilities = before[order].double().softmax(-1)
        before_token = probabilities.cumsum(-1) - probabilities
        is_kept = (before_token < row_params.top_p) | (row_params.top_p == 1)
        expected = order[is_kept & (before[order] > -torch.inf)]
        actual = after.isfinite().nonzero()[:, 0]
        differing = sorted(set(actual.tolist()) ^ set(expected.tolist()))
        # Rounding of the sums decides about the last tokens of a nucleus.
        assert before.double().softmax(-1)[differing].sum() < 2e-6 + is_flat * 4e-4
        assert row_params.top_p < 1 or not differing
        assert torch.equal(after[actual], before[actual])


@pytest.mark.parametrize("keep", [keep_top, keep_top_on_device])
def test_ties_do_not_keep_more_tokens_than_requested(
    keep: Callable[[torch.Tensor, list[SamplingParams]], None],
) -> None:
    logits = torch.zeros(3, 100)
    logits[:, 7] = 1
    parameters = [{"top_k": 5}, {"top_p": 0.5}, {"top_k": 40, "top_p": 0.25}]
    keep(logits, [SamplingParams(max_tokens=1, **row_params) for row_params in parameters])
    assert logits.isfinite().sum(1).tolist() == [5, 1 + 49, 1 + 8]
    assert logits[:, 7].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("top_p", "count"), [(0.2, 1), (0.25, 1), (0.3, 2), (0.5, 2), (0.6, 3), (0.75, 3), (0.8, 4)]
)
@pytest.mark.parametrize("keep", [keep_top, keep_top_on_device])
def test_a_nucleus_ends_with_the_token_that_reaches_top_p(
    keep: Callable[[torch.Tensor, list[SamplingParams]], None], top_p: float, count: int
) -> None:
    """Four tokens have a probability of a quarter each, whose sums are exact."""
    logits = torch.zeros(1, 4)
    keep(logits, [SamplingParams(max_tokens=1, top_p=top_p)])
    assert logits.isfinite().sum().item() == count


@pytest.mark.parametrize("keep", [keep_top, keep_top_on_device])
def test_a_top_p_of_one_keeps_the_least_likely_token(
    keep: Callable[[torch.Tensor, list[SamplingParams]], None],
) -> None:
    """Its probability is too small to change the sum. top_k makes the row use the limits."""
    logits = torch.tensor([[0.0, -60.0, -80.0]])
    keep(logits, [SamplingParams(max_tokens=1, top_k=2, top_p=1.0)])
    assert logits.tolist() == [[0.0, -60.0, -torch.inf]]
