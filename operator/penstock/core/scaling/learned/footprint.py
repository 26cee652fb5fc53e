"""Footprint of requests: the replicas that a rate of arrivals keeps busy.

A prompt is work that is due within the TTFT objective. An answer is a sequence that runs for one iteration
per output token, its stay. So r answers/s are r * stay sequences in the system, with their KV tokens
(Little's law). The resource that takes the most replicas decides:

    engine time   (prompt work + decode work) / the fraction of its time that a replica may be busy
    KV cache      sequences * held tokens / usable tokens
    batch size    sequences / max_num_seqs

Each is linear in the two rates. The stay is that at a full replica.
"""

from dataclasses import dataclass

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.learned.capacity import (
    MAX_KV_USAGE,
    Capacity,
    EngineLimits,
    Mix,
    capacity,
    request_work_s,
)
from penstock.core.scaling.learned.idle_engine import IdleEngine
from penstock.core.spec.objectives import Objectives

# Fraction of the TTFT objective that a prompt may wait at least, though its own prefill takes the rest.
MIN_SLACK = 0.1


@dataclass(frozen=True, slots=True)
class Demand:
    """Arrival rates: due prompt tokens per second, and answers per second that start."""

    prompt_tokens: float
    answers: float


@dataclass(frozen=True, slots=True)
class Footprint:
    """Replicas per unit of demand, of one kind of replica."""

    capacity: Capacity
    prompt_token: float  # by engine time, per prompt token/s
    # answer, kv, batch: by engine time, KV cache and batch size, per answer/s
    answer: float
    kv: float
    batch: float
    # Time that a prompt may wait for its prefill; that prefill's own time if it is longer than a prompt may
    # wait
    slack_s: float
    stay_s: float  # time between the first and the last token of an answer at a full replica
    noise: float  # variance of the load over its mean, for Poisson arrivals
    # The objectives that an idle engine misses, in words; empty if there is none
    unattainable: str = ""

    @classmethod
    def of(
        cls, model: IterationModel, mix: Mix, limits: EngineLimits, objectives: Objectives
    ) -> "Footprint":
        """Footprint of a mix of requests on one kind of replica."""
        found = capacity(model, mix, limits, objectives)
        own_s = model.time_s(mix.uncached_tokens, 0, 0) / max(0.1, 1 - 0.5 * found.busy)
        idle = IdleEngine.of(model, mix.uncached_tokens, mix.kv_tokens)
        slack_s = max(MIN_SLACK * objectives.max_wait_s, objectives.max_wait_s - own_s)
        if idle.ttft_s > objectives.max_wait_s:
            slack_s = idle.ttft_s
        stay_s = mix.output_tokens * max(1e-9, model.base_s) / max(0.02, 1 - found.busy)
        prompt_s = model.prefill_token_s * mix.uncached_tokens
        work_s = request_work_s(model, mix)
        squares = prompt_s**2 / (2 * slack_s) + (work_s - prompt_s) ** 2 / stay_s
        return cls(
            capacity=found,
            prompt_token=prompt_s / max(1.0, mix.prompt_tokens) / found.time_limit,
            answer=(work_s - prompt_s) / found.time_limit,
            kv=stay_s * mix.held_tokens / (MAX_KV_USAGE * limits.kv_tokens),
            batch=stay_s / limits.max_num_seqs,
            slack_s=slack_s,
            stay_s=stay_s,
            noise=squares / 2 / work_s / found.time_limit,
            unattainable=idle.missed(objectives),
        )

    def replicas(self, demand: Demand) -> float:
        """Replicas that the demand keeps busy, as a real number."""
        time = self.prompt_token * demand.prompt_tokens + self.answer * demand.answers
        return max(time, self.kv * demand.answers, self.batch * demand.answers)

    def request_replicas(self, mix: Mix) -> float:
        """Replicas that one mean request per second keeps busy, as a real number."""
        return self.replicas(Demand(mix.prompt_tokens, answers=1.0))

    def waiting_replicas(self, prompt_tokens: float, sequences: float, within_s: float) -> float:
        """Replicas that serve waiting work: prompts within within_s, and all sequences at the same time."""
        time = self.prompt_token * prompt_tokens / (within_s + self.slack_s)
        return max(time, self.kv / self.stay_s * sequences, self.batch / self.stay_s * sequences)

    def note(self, mix: Mix) -> str:
        found = self.capacity
        return (
            f"a replica takes {found.rate:.2f} requests/s of {mix.prompt_tokens:.0f} prompt and "
            f"{mix.output_tokens:.0f} output tokens, {found.busy:.0%} busy (limit: {found.limit})"
        )
