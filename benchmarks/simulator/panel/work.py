"""The least engine time of a request, whatever runs beside it: the unit of the lower bound.

The marginal time of a request (prompt, attention, decoding) is spent in any batch. The fixed part F of an
iteration is shared by its sequences. Three limits say how widely; the one that adds most to a load counts:

    cache     the sequences of an iteration have at most `kv_tokens` tokens of KV cache
    tokens    an iteration has at most `max_num_batched_tokens` tokens
    pace      a request that meets its TPOT has iterations of at most TPOT on average

Pace: let m(j) be the marginal time of token j. An iteration takes F + the sum of m over its batch. With
Lagrange multipliers u for the pace of each request, and the inequality of Cauchy and Schwarz for a batch, a
token bears at least 2·sqrt(F·u·m) - u·(TPOT - F) of the fixed part. The best u gives F/(TPOT - F) times the
marginal time of decoding, if that is about the same for all tokens of a request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from benchmarks.simulator.panel.replica import prefill_s, shared_tokens

from penstock.sim.profile import Profile
from penstock.sim.request import Request

# A request that would fill more than this share of the KV cache counts no work, as it may be cut or refused.
FITTING_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Work:
    """Least engine time of a request, in seconds. decode_s: of all tokens after the first."""

    prefill_s: float
    decode_s: float


def least_work(engine: Profile, tpot_s: float, requests: Sequence[Request]) -> list[Work]:
    """Work of each request, if it meets its TPOT. All shared prefixes count as cached."""
    marginal = [_marginal(engine, request) for request in requests]
    shares = [
        [_cache_share(engine, request) for request in requests],
        [_token_share(engine, request) for request in requests],
        [_pace_share(engine, tpot_s, request) for request in requests],
    ]
    best = max(shares, key=lambda works: sum(work.prefill_s + work.decode_s for work in works))
    return [
        Work(own.prefill_s + fixed.prefill_s, own.decode_s + fixed.decode_s)
        if _fits(engine, request)
        else Work(0.0, 0.0)
        for own, fixed, request in zip(marginal, best, requests, strict=True)
    ]


def _fits(engine: Profile, request: Request) -> bool:
    tokens = request.prompt_tokens + request.output_tokens
    return tokens <= FITTING_SHARE * engine.kv_tokens


def _marginal(engine: Profile, request: Request) -> Work:
    tokens = request.output_tokens - 1
    attended = tokens * (request.prompt_tokens + request.output_tokens / 2)
    times = engine.times
    return Work(
        prefill_s(engine, request.prompt_tokens, shared_tokens(request)),
        times.sequence_s * tokens + times.kv_token_s * attended,
    )


def _cache_share(engine: Profile, request: Request) -> Work:
    """Fixed part by the share of the KV cache that a sequence uses alone."""
    tokens = request.output_tokens - 1
    own = request.prompt_tokens - shared_tokens(request) + request.output_tokens / 2
    return Work(0.0, engine.times.fixed_s * tokens * own / engine.kv_tokens)


def _token_share(engine: Profile, request: Request) -> Work:
    each_s = engine.times.fixed_s / engine.max_num_batched_tokens
    prompt = request.prompt_tokens - shared_tokens(request)
    return Work(each_s * prompt, each_s * (request.output_tokens - 1))


def _pace_share(engine: Profile, tpot_s: float, request: Request) -> Work:
    times = engine.times
    if tpot_s <= times.fixed_s:
        return Work(0.0, 0.0)
    first = times.sequence_s + times.kv_token_s * (request.prompt_tokens + 1)
    last = times.sequence_s + times.kv_token_s * (request.prompt_tokens + request.output_tokens - 1)
    # The mean of the roots of a linear series is at least that of its ends.
    root = (sqrt(first) + sqrt(last)) / 2
    tokens = request.output_tokens - 1
    return Work(0.0, tokens * times.fixed_s * root * root / (tpot_s - times.fixed_s))
