"""Largest request rate at which the fraction `attainment` of requests keeps the TPOT objective.

With r requests/s of W seconds of engine time beyond c0, the part of an iteration that is the same for any
batch, the mean time between tokens is x = c0 / (1 - r * W) (see capacity.py). How far x varies depends on the
prompts. An engine that holds prompts back lets no burst of arrivals into its batch, but there must be prompts
that it can hold back:

    prompts take MIN_PROMPT_SHARE of the time or more -> they wait, and x is steady
    prompts take none of it                           -> requests join at once, and x varies
    between                                           -> the rate is in proportion between those two
"""

from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist

from penstock.core.spec.objectives import Objectives

# The engine fills a step with prompts up to this fraction of the TPOT objective, as in the engine's
# core/prefill_budget.py.
MAX_TPOT_FRACTION = 0.9
# Least fraction of a step that prompts get: a quarter of the time of decoding, as there.
MIN_PROMPT_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Engine time of a request in seconds: of its prompt, and of all of it (work_s), without base_s.

    base_s: time of an iteration whatever its batch; above 0.
    """

    base_s: float
    prompt_s: float
    work_s: float
    output_tokens: float


def tpot_rate(times: RequestTimes, objectives: Objectives) -> float:
    """Largest rate in requests/s; 0 if an idle engine already misses the objective."""
    waiting = rate_if_prompts_wait(times, MAX_TPOT_FRACTION * objectives.tpot_s)
    joining = rate_if_prompts_join(times, objectives)
    share = min(1.0, waiting * times.prompt_s / MIN_PROMPT_SHARE)
    return joining + share * (waiting - joining)


def rate_if_prompts_wait(times: RequestTimes, step_s: float) -> float:
    """Rate of an engine that fills each step up to step_s with prompts while sequences decode.

    While some sequence decodes, x = step_s gives the rate r, and prompts take the share f of the time. While
    none decodes, they take all of it. The number of sequences that decode is a birth-death chain. Births: at
    the full rate of prompts if there is none, else at r, which is f of it. Deaths: at their number divided
    by the time of an answer. With m = r * output * x the chain is empty with the probability

        exp(-m) / (exp(-m) + (1 - exp(-m)) / f)
    """
    rate = max(0.0, 1 - times.base_s / step_s) / times.work_s
    share = rate * times.prompt_s
    if not share:
        return rate
    none = exp(-rate * times.output_tokens * step_s)
    empty = none / (none + (1 - none) / share)
    return empty / times.prompt_s + (1 - empty) * rate


def rate_if_prompts_join(times: RequestTimes, objectives: Objectives) -> float:
    """Rate of an engine whose batch takes each request at once.

    With n sequences an iteration takes c0 + n * s, where s = W / output, so requests end at the rate
    n / (output * (c0 + n * s)). That is a symmetric queue: of the distribution of work only the mean matters
    (Kelly, Reversibility and Stochastic Networks, 1979, section 3.3). With u = r * W

        P(n) / P(n - 1) = u * (n + c0 / s) / n

    which is a negative binomial distribution. An arrival finds it and adds itself, so that its tokens take

        mean (c0 + s) / (1 - u),   variance s * (c0 + s) * u / (1 - u)^2

    The objective holds if mean + z * deviation <= TPOT, with the quantile z of the normal distribution for
    the attainment. That is quadratic in the root of u.
    """
    own_s = times.work_s / times.output_tokens
    alone_s, tpot_s = times.base_s + own_s, objectives.tpot_s
    if tpot_s <= alone_s:
        return 0.0
    z = max(0.0, NormalDist().inv_cdf(min(0.9999, objectives.attainment)))
    spread = z * sqrt(own_s * alone_s)
    root = (sqrt(spread**2 + 4 * tpot_s * (tpot_s - alone_s)) - spread) / (2 * tpot_s)
    return root**2 / times.work_s
