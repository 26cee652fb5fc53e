"""Statistics of one service's requests: counts, outcomes, and what each engine did."""

from collections.abc import Container
from typing import Protocol

from penstock.core.canary.arm_counter import ArmCounter
from penstock.core.canary.evidence import Arm
from penstock.core.routing.token_estimate import TokenEstimate
from penstock.core.scaling.histogram import Tally
from penstock.core.scaling.signals import GatewayReading
from penstock.core.spec.objectives import Objectives
from penstock_engine.wire import BETWEEN_TOKENS_S, FIRST_TOKEN_S


class Asked(Protocol):
    """A request that waits or runs. came_s: when it was complete, on the monotonic clock."""

    came_s: float
    prompt_tokens: int
    has_begun: bool


class Account:
    """Counts one service's requests since this process started.

    The tokens of a prompt are estimated from the bytes of its text, at the ratio that answers with
    usage have shown.
    """

    def __init__(self) -> None:
        self.objectives: Objectives | None = None
        self.arrivals = self.prompt_tokens = self.ended = self.shed = self.failed = 0
        self.output_tokens = self.attended_tokens = self.late = 0
        self.ttft_s, self.tpot_s = Tally(FIRST_TOKEN_S), Tally(BETWEEN_TOKENS_S)
        self.queued: set[Asked] = set()
        self.in_flight: set[Asked] = set()
        self._arms: dict[str, ArmCounter] = {}
        self._unanswered: dict[str, int] = {}
        self._unended: dict[str, int] = {}
        self.token_estimate = TokenEstimate()

    def arm(self, pod: str) -> ArmCounter:
        """pod: of an engine, "namespace/name"."""
        return self._arms.setdefault(pod, ArmCounter())

    def given(self, pod: str) -> tuple[int, int]:
        """Count a request that is sent to the pod. Returns how many others wait there for their first
        byte, and how many have not ended."""
        ahead, beside = self._unanswered.get(pod, 0), self._unended.get(pod, 0)
        self._unanswered[pod], self._unended[pod] = ahead + 1, beside + 1
        return ahead, beside

    def answered(self, pod: str) -> None:
        """Count that a request sent to the pod waits for its first byte no longer."""
        _one_less(self._unanswered, pod)

    def left(self, pod: str) -> int:
        """Count that a request sent to the pod has ended, however. Returns how many have not."""
        _one_less(self._unended, pod)
        return self._unended.get(pod, 0)

    def only(self, pods: Container[str]) -> None:
        """Forget all engines but these pods."""
        self._arms = {pod: count for pod, count in self._arms.items() if pod in pods}

    def arms(self) -> dict[str, Arm]:
        return {pod: count.snapshot() for pod, count in self._arms.items()}

    def reading(self, at_s: float, now_s: float) -> GatewayReading:
        """at_s: since the epoch; now_s: of the monotonic clock."""
        oldest_s = min((ticket.came_s for ticket in self.queued), default=now_s)
        return GatewayReading(
            at_s=at_s,
            queued=len(self.queued),
            queued_prompt_tokens=sum(t.prompt_tokens for t in self.queued),
            in_flight=len(self.in_flight),
            in_flight_prefill_tokens=sum(
                t.prompt_tokens for t in self.in_flight if not t.has_begun
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


def _one_less(counts: dict[str, int], pod: str) -> None:
    counts[pod] -= 1
    if not counts[pod]:
        del counts[pod]
