"""The rates at which TPOT holds, compared with the queues that they are derived from."""

from math import factorial, sqrt
from statistics import NormalDist

import pytest

from penstock.core.scaling.learned.tpot_rate import (
    MAX_TPOT_FRACTION,
    MIN_PROMPT_SHARE,
    RequestTimes,
    rate_if_prompts_join,
    rate_if_prompts_wait,
    tpot_rate,
)
from penstock.core.spec.objectives import Objectives
from penstock_engine.core import prefill_budget

# Long answers: 0.03 s of prompt, 0.9 s of decoding, 3,000 tokens.
REASONING = RequestTimes(base_s=0.011, prompt_s=0.03, work_s=0.93, output_tokens=3000)
# Short answers to long prompts.
CODE = RequestTimes(base_s=0.011, prompt_s=0.095, work_s=0.1, output_tokens=28)


def occupancy(times: RequestTimes, rate: float) -> list[float]:
    """Stationary probabilities of n sequences that share an engine's iterations."""
    own_s = times.work_s / times.output_tokens
    weights = [1.0]
    for n in range(1, 4000):
        ends = n / (times.output_tokens * (times.base_s + n * own_s))
        weights.append(weights[-1] * rate / ends)
    total = sum(weights)
    return [weight / total for weight in weights]


def test_the_shares_of_a_step_are_those_of_the_engine() -> None:
    """The engine gives prompts a fraction of the decode step; here it is a share of the whole step."""
    of_decoding = prefill_budget.MIN_PREFILL_FRACTION
    assert pytest.approx(of_decoding / (1 + of_decoding)) == MIN_PROMPT_SHARE
    assert prefill_budget.MAX_TPOT_FRACTION == MAX_TPOT_FRACTION


@pytest.mark.parametrize("attainment", [0.9, 0.99])
@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_tokens_that_vary_with_arrivals_keep_the_objective_at_the_asked_quantile(
    factor: float, attainment: float
) -> None:
    tpot_s = factor * REASONING.base_s
    rate = rate_if_prompts_join(REASONING, Objectives(30.0, tpot_s, attainment))
    own_s = REASONING.work_s / REASONING.output_tokens
    chances = occupancy(REASONING, rate)
    steps_s = [REASONING.base_s + (n + 1) * own_s for n in range(len(chances))]
    mean_s = sum(p * x for p, x in zip(chances, steps_s, strict=True))
    variance = sum(p * (x - mean_s) ** 2 for p, x in zip(chances, steps_s, strict=True))
    z = NormalDist().inv_cdf(attainment)
    assert mean_s + z * sqrt(variance) == pytest.approx(tpot_s, rel=1e-6)
    in_time = sum(p for p, x in zip(chances, steps_s, strict=True) if x <= tpot_s)
    assert in_time == pytest.approx(attainment, abs=0.02)


@pytest.mark.parametrize("step_s", [0.013, 0.015, 0.020, 0.040])
def test_prompts_that_wait_take_all_of_the_time_while_none_decodes(step_s: float) -> None:
    """The rate is that of the ends in the stationary state of the chain."""
    rate = (1 - CODE.base_s / step_s) / CODE.work_s
    answer_s = CODE.output_tokens * step_s
    mean = rate * answer_s
    weights = [1.0] + [mean**n / factorial(n) / (rate * CODE.prompt_s) for n in range(1, 150)]
    ends = sum(n * weight for n, weight in enumerate(weights)) / answer_s / sum(weights)
    assert rate_if_prompts_wait(CODE, step_s) == pytest.approx(ends)
    assert ends > rate


def test_a_batch_that_is_never_empty_adds_nothing() -> None:
    many = RequestTimes(base_s=0.011, prompt_s=0.05, work_s=0.06, output_tokens=2000)
    assert rate_if_prompts_wait(many, 0.022) == pytest.approx(0.5 / 0.06)


def test_the_share_of_prompts_decides_which_of_both_rates_holds() -> None:
    objectives = Objectives(30.0, 0.022)
    step_s = MAX_TPOT_FRACTION * objectives.tpot_s
    assert tpot_rate(CODE, objectives) == rate_if_prompts_wait(CODE, step_s)
    waiting = rate_if_prompts_wait(REASONING, step_s)
    joining = rate_if_prompts_join(REASONING, objectives)
    share = waiting * REASONING.prompt_s / MIN_PROMPT_SHARE
    assert share < 0.1
    assert joining < tpot_rate(REASONING, objectives) < waiting
    assert tpot_rate(REASONING, objectives) == pytest.approx(
        (1 - share) * joining + share * waiting
    )


@pytest.mark.parametrize("prompt_s", [0.0, 0.02])
def test_an_objective_below_an_idle_engine_leaves_nothing(prompt_s: float) -> None:
    times = RequestTimes(base_s=0.02, prompt_s=prompt_s, work_s=0.1, output_tokens=100)
    assert tpot_rate(times, Objectives(3.0, 0.01)) == 0.0
    assert tpot_rate(times, Objectives(3.0)) == pytest.approx(10.0, rel=1e-3)
