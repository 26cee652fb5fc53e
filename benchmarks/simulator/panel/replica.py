"""Closed-form estimates of a request's engine time and of a replica's capacity, to size random loads."""

from dataclasses import dataclass
from random import Random

from benchmarks.simulator.panel.lengths import Lengths

from penstock.sim.profile import Profile, profile
from penstock.sim.request import Request
from penstock.sim.workload.generate import PREFIX_BLOCK_TOKENS, RequestSource

DRAWS = 2000
# Quantile of the prompts that an idle engine must compute within the TTFT objective.
LONG = 0.998
# Share of the KV cache, and of the TPOT objective, that a replica is planned to use.
KV_SHARE, TPOT_SHARE = 0.8, 0.85

# Simulating a request costs as much as this many output tokens, and a prompt token this share of one.
REQUEST_TOKENS, PROMPT_WEIGHT = 500.0, 0.1


@dataclass(frozen=True, slots=True)
class Demand:
    """Means over requests, with all shared prefixes cached. kv_tokens: of a sequence, halfway through.

    prefill_s: engine time of the prompt. cold_prefill_s, long_prefill_s: its mean and LONG quantile without
    any cache.
    weight_tokens: tokens of a request by what they cost the simulator, as in output tokens.
    """

    weight_tokens: float
    output_tokens: float
    max_output_tokens: int
    kv_tokens: float
    own_kv_tokens: float
    prefill_s: float
    cold_prefill_s: float
    long_prefill_s: float


def shared_tokens(request: Request) -> int:
    """Tokens of the prompt that other requests may have cached; the last token is never cached."""
    return min(request.prompt_tokens - 1, (len(request.prefix) - 1) * PREFIX_BLOCK_TOKENS)


def prefill_s(engine: Profile, prompt_tokens: int, cached_tokens: int = 0) -> float:
    """Engine time of a prompt beyond the fixed part of its iterations."""
    pairs = (prompt_tokens**2 - cached_tokens**2) / 2
    times = engine.times
    return times.prompt_token_s * (prompt_tokens - cached_tokens) + times.pair_s * pairs


def demand_of(lengths: Lengths, seed: int) -> Demand:
    """Estimate the demand from DRAWS requests. The mixes must span one second."""
    engine = profile(lengths.profile)
    source = RequestSource(lengths.mixes, Random(seed))
    requests = [source.draw(i / DRAWS) for i in range(DRAWS)]
    cold = sorted(prefill_s(engine, r.prompt_tokens) for r in requests)
    prefills = [prefill_s(engine, r.prompt_tokens, shared_tokens(r)) for r in requests]
    kv = sum(r.prompt_tokens + r.output_tokens / 2 for r in requests) / DRAWS
    shared = sum(shared_tokens(r) for r in requests) / DRAWS
    prompt = sum(r.prompt_tokens for r in requests) / DRAWS
    outputs = [r.output_tokens for r in requests]
    return Demand(
        weight_tokens=REQUEST_TOKENS + PROMPT_WEIGHT * prompt + sum(outputs) / DRAWS,
        output_tokens=sum(outputs) / DRAWS,
        max_output_tokens=max(outputs),
        kv_tokens=kv,
        own_kv_tokens=kv - shared,
        prefill_s=sum(prefills) / DRAWS,
        cold_prefill_s=sum(cold) / DRAWS,
        long_prefill_s=cold[int(LONG * DRAWS)],
    )


def iteration_s(engine: Profile, demand: Demand, sequences: float) -> float:
    """Iteration time of a decoding batch whose sequences also bring their prompts."""
    return engine.times.fixed_s + sequences * _sequence_s(engine, demand)


def replica_rps(engine: Profile, demand: Demand, tpot_s: float) -> float:
    """Rate at which the KV cache, the batch or the TPOT objective is used up."""
    sequences = min(
        engine.max_num_seqs,
        KV_SHARE * engine.kv_tokens / demand.own_kv_tokens,
        (TPOT_SHARE * tpot_s - engine.times.fixed_s) / _sequence_s(engine, demand),
    )
    sequences = max(1.0, sequences)
    return sequences / (demand.output_tokens * iteration_s(engine, demand, sequences))


def _sequence_s(engine: Profile, demand: Demand) -> float:
    times = engine.times
    decode_s = times.sequence_s + times.kv_token_s * demand.kv_tokens
    return decode_s + demand.prefill_s / demand.output_tokens
