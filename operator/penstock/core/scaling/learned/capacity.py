"""Capacity of a replica: the largest rate of the present mix of requests within the objectives.

Let W be the seconds of engine time of a request, and c0 the part of an iteration that is the same for any
batch. At r requests/s, requests take r * W of each second, and c0 takes the rest. So iterations, and with
them the tokens of a sequence, are x seconds apart:

    x = c0 + x * r * W = c0 / (1 - r * W)

By Little's law, r * output * x sequences run at a time. The limits on sequences and on KV tokens are solved
for r here, the limit on x in tpot_rate.py. benchmarks/simulator/replica_capacity.py compares the rates with
simulated replicas.
"""

import math
from dataclasses import dataclass

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.learned.idle_engine import IdleEngine
from penstock.core.scaling.learned.tpot_rate import RequestTimes, tpot_rate
from penstock.core.spec.objectives import Objectives

# Fraction of the engine's time that requests may take. An engine that is never idle has no time for a burst.
MAX_BUSY = 0.96
# Fraction of the KV cache; beyond it, sequences are preempted and computed twice.
MAX_KV_USAGE = 0.9
# Least fraction of the engine's time that counts as usable, even if no batch keeps a TPOT objective that an
# idle engine keeps.
MIN_BUSY = 0.05


@dataclass(frozen=True, slots=True)
class Mix:
    """Mean request. uncached_tokens: prompt tokens that are not in the prefix cache.

    held: KV tokens in the cache per running sequence, over those of the mean request at half of its output.
    attended: the same for the KV tokens that an output token attends to. Shared blocks make held smaller.
    Outputs of different lengths make both larger, because long ones run for longer.
    """

    prompt_tokens: float
    uncached_tokens: float
    output_tokens: float
    held: float = 1.0
    attended: float = 1.0

    @property
    def kv_tokens(self) -> float:
        """KV tokens that an output token attends to, mean over all output tokens."""
        return self.attended * self.halfway_tokens

    @property
    def held_tokens(self) -> float:
        """KV tokens in the cache per running sequence."""
        return self.held * self.halfway_tokens

    @property
    def halfway_tokens(self) -> float:
        """KV tokens of the mean request at half of its output."""
        return self.prompt_tokens + self.output_tokens / 2


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of an engine: tokens of KV cache, and sequences at a time."""

    kv_tokens: float
    max_num_seqs: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of one replica. rate: requests/s beyond which a queue grows without end or TPOT fails.

    The rate has no margin for bursts. work_s: engine time of one request. limit: the limit that binds.
    time_limit: fraction of the engine's time that requests may take, by the limits on engine time and TPOT.
    """

    rate: float
    work_s: float
    limit: str
    time_limit: float

    @property
    def busy(self) -> float:
        """Fraction of its time that a full replica is busy."""
        return self.rate * self.work_s


def work_s(model: IterationModel, uncached: float, output: float, kv_tokens: float) -> float:
    """Engine time that a request adds, in seconds. kv_tokens: as in `Mix.kv_tokens`."""
    return model.prefill_token_s * uncached + output * (
        model.sequence_s + model.kv_token_s * kv_tokens
    )


def capacity(
    model: IterationModel, mix: Mix, limits: EngineLimits, objectives: Objectives
) -> Capacity:
    """Capacity of one replica for a mix of requests.

    A TPOT objective that an idle engine misses is no limit, because more replicas would not help.
    """
    work = request_work_s(model, mix)
    prompt = model.prefill_token_s * mix.uncached_tokens
    times = RequestTimes(max(1e-9, model.base_s), prompt, work, mix.output_tokens)
    kv = MAX_KV_USAGE * limits.kv_tokens
    decode = mix.output_tokens * times.base_s
    rates = {
        "engine time": MAX_BUSY / work,
        "KV cache": kv / (decode * mix.held_tokens + kv * work),
        "batch size": limits.max_num_seqs / (decode + limits.max_num_seqs * work),
    }
    if not IdleEngine.of(model, mix.uncached_tokens, mix.kv_tokens).misses_tpot(objectives):
        rates["TPOT"] = max(MIN_BUSY / work, tpot_rate(times, objectives))
    limit = min(rates, key=lambda name: rates[name])
    time_limit = work * min(rates["engine time"], rates.get("TPOT", math.inf))
    return Capacity(rates[limit], work, limit, time_limit)


def request_work_s(model: IterationModel, mix: Mix) -> float:
    """Engine time of the mean request; above 0."""
    return max(1e-9, work_s(model, mix.uncached_tokens, mix.output_tokens, mix.kv_tokens))
