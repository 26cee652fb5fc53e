"""Counters of a simulated engine since its start, and its metrics."""

from penstock.core.scaling.histogram import HistogramCounter
from penstock.core.scaling.signals import EngineReading
from penstock_engine.contract.metric_types import BETWEEN_TOKENS_S, FIRST_TOKEN_S
from penstock_engine.core.stats import SchedulerStats


class EngineCounters:
    """Counters that the scheduler does not have. busy_s: time of finished leaps."""

    def __init__(self) -> None:
        self.busy_s = 0.0
        self.output_tokens = 0
        self._finished = self._finished_tokens = 0
        self._ttft_s = HistogramCounter(FIRST_TOKEN_S)
        self._itl_s = HistogramCounter(BETWEEN_TOKENS_S)

    def record_decode(self, iterations: int, sequences: int, duration_s: float) -> None:
        """Count a token of each decoding sequence in each iteration. duration_s: of one iteration."""
        self._itl_s.add(duration_s, iterations * sequences)
        self.output_tokens += iterations * sequences

    def record_first_token(self, ttft_s: float) -> None:
        self._ttft_s.add(ttft_s)

    def record_end(self, output_tokens: int) -> None:
        self._finished += 1
        self._finished_tokens += output_tokens

    def read(
        self,
        now: float,
        stats: SchedulerStats,
        num_open: int,
        steps: int,
        kv_tokens: int,
        leap_s: float,
    ) -> EngineReading:
        """Current metrics. steps: finished iterations. kv_tokens: capacity of the KV cache.

        leap_s: time of the finished iterations of the current leap.
        """
        return EngineReading(
            at_s=now,
            running=num_open - stats.waiting,
            waiting=stats.waiting,
            kv_usage=stats.kv_usage,
            kv_capacity_tokens=kv_tokens,
            prefill_tokens_pending=stats.prefill_tokens_pending,
            prompt_tokens=stats.prompt_tokens_computed + stats.prompt_tokens_cached,
            cached_tokens=stats.prompt_tokens_cached,
            output_tokens=self.output_tokens,
            steps=steps,
            finished=self._finished,
            output_tokens_finished=self._finished_tokens,
            preemptions=stats.preemptions,
            ttft_s=self._ttft_s.histogram(),
            itl_s=self._itl_s.histogram(),
            busy_s=self.busy_s + leap_s,
        )
