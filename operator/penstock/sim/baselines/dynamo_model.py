"""Dynamo performance model of an aggregated engine: latencies and the best rate of one replica.

Source: ai-dynamo components/src/dynamo/planner/core/perf_model/agg.py. Dynamo regresses the time of
an iteration on its prefill tokens and decode KV; here it is a measured profile.
"""

from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines import rounding


def next_ttft_s(
    profile: EngineProfile, queued_tokens: float, prompt_tokens: float, running: float, kv: float
) -> float:
    """TTFT of a request that arrives now: chunk by chunk through the queued tokens and its prompt."""
    left = queued_tokens + prompt_tokens
    total = 0.0
    while left > 0:
        chunk = min(left, profile.max_batched_tokens)
        total += profile.iteration_s(chunk, running, kv)
        left -= chunk
    return total


def best_rate(
    profile: EngineProfile, objectives: Objectives, isl: float, osl: float, hit_rate: float
) -> float:
    """Requests/s of the largest batch that meets both objectives, by Little's law.

    isl, osl: mean prompt and output tokens. The batch is bounded by KV capacity, by max_sequences, and by
    the rate at which prompts replace ended answers. If no batch meets the objectives, it is 1.
    """
    context = isl + osl / 2
    tokens = profile.max_batched_tokens
    most = min(
        profile.kv_capacity_tokens / context, profile.max_sequences, tokens * osl / (isl + osl)
    )
    best = 0.0
    for batch in range(1, max(1, rounding.down(most)) + 1):
        prefill = min(batch * isl * (1 - hit_rate) / osl, tokens)
        itl_s = profile.iteration_s(prefill, batch, batch * context)
        ttft_s = next_ttft_s(profile, prefill, isl, batch, batch * context)
        fails = itl_s > objectives.tpot_s or ttft_s > objectives.ttft_s
        if fails and batch > 1:
            break
        best = batch / (osl * itl_s)
        if fails:
            break
    return best
