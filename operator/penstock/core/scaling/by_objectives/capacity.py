"""What one replica can take: the largest rate of the present mix of requests within objectives.

With work W seconds of engine time for a request (beyond the part of each iteration that is the
same for any batch, c0), a rate of r requests/s keeps the engine busy for r * W of each second. The
rest of the time is c0's, so iterations, and with them tokens, are

    x = c0 / (1 - r * W)      seconds apart        (x = c0 + x * r * W, by Little's law)

and r * output * x sequences run at a time. Each limit on x, on sequences and on KV tokens is
solved for r.
"""

from dataclasses import dataclass

from penstock.core.scaling.by_objectives.iteration import IterationModel
from penstock.core.spec.objectives import Objectives

# An engine that is never idle has no time for what comes next.
MAX_BUSY = 0.96
# Beyond, sequences are preempted and computed twice.
MAX_KV_USAGE = 0.9


@dataclass(frozen=True, slots=True)
class Mix:
    """The mean request. uncached_tokens: of its prompt, those that are computed. held, attended: the KV
    tokens that there are for each that runs, and that a token attends to, over those halfway through.
    Fewer are held where blocks are shared; more are both where outputs differ, as the longest
    run for longest."""

    prompt_tokens: float
    uncached_tokens: float
    output_tokens: float
    held: float = 1.0
    attended: float = 1.0

    @property
    def kv_tokens(self) -> float:
        """Attended to, averaged over all tokens of such requests."""
        return self.attended * self.halfway_tokens

    @property
    def held_tokens(self) -> float:
        return self.held * self.halfway_tokens

    @property
    def halfway_tokens(self) -> float:
        return self.prompt_tokens + self.output_tokens / 2


@dataclass(frozen=True, slots=True)
class Room:
    """What an engine has: tokens of KV cache, and sequences at a time."""

    kv_tokens: float
    max_num_seqs: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of one replica. rate: requests/s beyond which a queue grows, as engines let prompts wait before
    what they decode is late. work_s: engine time of one request. limit: what binds."""

    rate: float
    work_s: float
    limit: str

    @property
    def busy(self) -> float:
        """The share of its time that a full replica works."""
        return self.rate * self.work_s


def work_s(model: IterationModel, uncached: float, output: float, kv_tokens: float) -> float:
    """Engine time that a request adds; kv_tokens as in `Mix.kv_tokens`."""
    return model.prefill_token_s * uncached + output * (
        model.sequence_s + model.kv_token_s * kv_tokens
    )


def capacity(model: IterationModel, mix: Mix, room: Room, objectives: Objectives) -> Capacity:
    """tpot objectives below what an idle engine needs leave a sliver: nothing holds them."""
    work = request_work_s(model, mix)
    base = max(1e-9, model.base_s)
    kv = MAX_KV_USAGE * room.kv_tokens
    decode = mix.output_tokens * base
    limits = {
        "engine time": MAX_BUSY / work,
        "TPOT": _busy_in_time(model, objectives) / work,
        "KV cache": kv / (decode * mix.held_tokens + kv * work),
        "batch size": room.max_num_seqs / (decode + room.max_num_seqs * work),
    }
    limit = min(limits, key=lambda name: limits[name])
    return Capacity(limits[limit], work, limit)


def request_work_s(model: IterationModel, mix: Mix) -> float:
    """Of the mean request; above 0."""
    return max(1e-9, work_s(model, mix.uncached_tokens, mix.output_tokens, mix.kv_tokens))


def _busy_in_time(model: IterationModel, objectives: Objectives) -> float:
    """The share of its time that an engine may work while TPOT holds."""
    return max(0.05, 1 - model.base_s / objectives.tpot_s)
