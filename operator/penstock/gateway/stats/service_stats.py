"""Statistics of one service's requests: counts, outcomes, and what each engine did."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

from penstock.core.canary.arm import Arm, ArmCounter
from penstock.core.routing.pick import Side
from penstock.core.routing.token_estimate import TokenEstimates
from penstock.core.scaling.histogram import HistogramCounter
from penstock.core.scaling.signals import GatewayReading
from penstock.core.spec.objectives import Objectives
from penstock.gateway.stats.first_answers import FirstAnswers
from penstock_engine.contract.metric_types import BETWEEN_TOKENS_S, FIRST_TOKEN_S


class OpenRequest(Protocol):
    """A request that waits or runs.

    arrived_s: when the client had sent all of it, on the monotonic clock. prompt_tokens: estimate.
    has_response: whether the first byte of its response arrived.
    """

    arrived_s: float
    prompt_tokens: int
    has_response: bool


class ServiceStats:
    """Counts one service's requests since this process started.

    Prompt tokens are estimated from the bytes of the text, at the ratio seen in responses with usage to
    the same tenant.
    first_answers: of session-affinity keys, by side.
    """

    def __init__(self) -> None:
        self.objectives: Objectives | None = None
        self.arrivals = self.prompt_tokens = self.ended = self.shed = self.failed = 0
        self.output_tokens = self.attended_tokens = self.late = 0
        self.ttft_s, self.tpot_s = (
            HistogramCounter(FIRST_TOKEN_S),
            HistogramCounter(BETWEEN_TOKENS_S),
        )
        self.queued: set[OpenRequest] = set()
        self.in_flight: set[OpenRequest] = set()
        self._arms: dict[str, ArmCounter] = {}
        self.first_answers: defaultdict[Side, FirstAnswers] = defaultdict(FirstAnswers)
        self._before_first_byte: dict[str, int] = {}  # pod -> requests sent to it
        self._open: dict[str, int] = {}  # likewise
        self.token_estimates = TokenEstimates()

    def arm(self, pod: str) -> ArmCounter:
        """Return the counts of the engine pod "namespace/name"."""
        return self._arms.setdefault(pod, ArmCounter())

    def count_sent(self, pod: str) -> tuple[int, int]:
        """Count a request that is sent to the pod.

        Returns how many other requests wait there for their first byte, and how many have not ended.
        """
        num_ahead, num_open = self._before_first_byte.get(pod, 0), self._open.get(pod, 0)
        self._before_first_byte[pod], self._open[pod] = num_ahead + 1, num_open + 1
        return num_ahead, num_open

    def count_first_byte(self, pod: str) -> None:
        """Count that a request sent to the pod no longer waits for its first byte."""
        _decrement(self._before_first_byte, pod)

    def count_end(self, pod: str) -> int:
        """Count that a request sent to the pod has ended in any way. Returns how many have not."""
        _decrement(self._open, pod)
        return self._open.get(pod, 0)

    def keep_only(self, sides: Mapping[str, Side]) -> None:
        """Drop what is known of all other engine pods and their sides. sides: by pod."""
        self._arms = {pod: count for pod, count in self._arms.items() if pod in sides}
        for side in self.first_answers.keys() - sides.values():
            del self.first_answers[side]

    def arms(self) -> dict[str, Arm]:
        """Return the counts of each engine pod, for the judge of a canary."""
        return {pod: count.snapshot() for pod, count in self._arms.items()}

    def reading(self, at_s: float, now_s: float) -> GatewayReading:
        """Return all counts. at_s: now since the epoch; now_s: now on the monotonic clock."""
        oldest_s = min((request.arrived_s for request in self.queued), default=now_s)
        return GatewayReading(
            at_s=at_s,
            queued=len(self.queued),
            queued_prompt_tokens=sum(request.prompt_tokens for request in self.queued),
            in_flight=len(self.in_flight),
            in_flight_prefill_tokens=sum(
                request.prompt_tokens for request in self.in_flight if not request.has_response
            ),
            oldest_wait_s=now_s - oldest_s,
            arrivals=self.arrivals,
            prompt_tokens=self.prompt_tokens,
            ended=self.ended,
            output_tokens=self.output_tokens,
            attended_tokens=self.attended_tokens,
            late=self.late,
            shed=self.shed,
            failed=self.failed,
            ttft_s=self.ttft_s.histogram(),
            tpot_s=self.tpot_s.histogram(),
        )


def _decrement(counts: dict[str, int], pod: str) -> None:
    counts[pod] -= 1
    if not counts[pod]:
        del counts[pod]
