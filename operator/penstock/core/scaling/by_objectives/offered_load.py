"""Offered load: the demand of the arrivals so far, if no request had to wait for a replica.

Answers: an infinite-server queue with time-varying arrivals (Eick, Massey and Whitt, 1993). With exponential
stays, the number of sequences in the system is the stay times the exponential mean of the arrival rate over
one stay. A burst counts only as far as its answers overlap.

Prompts: the processor-demand criterion (Baruah, Rosier and Howell, 1990). Tokens that arrived in a window
of w seconds are due within w + slack. So the rate that is due is the largest tokens / (w + slack) over the
windows that end now. The longest window counts with its mean rate, which has to be served.
"""

import math
from dataclasses import dataclass, field, replace

from penstock.core.scaling.by_objectives.arrivals import Arrivals, Arrived
from penstock.core.scaling.learned.footprint import Demand, Footprint

# Longest window of arrived prompts, in slacks. Prompts that arrived earlier have been served, or wait.
LONGEST_WINDOW_SLACKS = 8.0


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """Arrivals of one service, and the answers that they keep in the system.

    since_s: time of the first observation; None: there is none. answers: their rate, as the exponential
    mean over one stay.
    """

    since_s: float | None = None
    arrivals: Arrivals = field(default_factory=Arrivals)
    answers: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether arrivals were observed over some time."""
        return len(self.arrivals.history) > 1

    def updated(
        self, now_s: float, requests: int, prompt_tokens: int, footprint: Footprint
    ) -> "OfferedLoad":
        """Add the arrivals since the last observation. Those before the first one do not count."""
        if self.since_s is None:
            return OfferedLoad(now_s, Arrivals((Arrived(now_s),)))
        elapsed_s, age_s = now_s - self.arrivals.now.at_s, now_s - self.since_s
        if elapsed_s <= 0:
            return self
        share = _newest_share(elapsed_s, footprint.stay_s, age_s)
        longest_s = LONGEST_WINDOW_SLACKS * footprint.slack_s
        return OfferedLoad(
            self.since_s,
            self.arrivals.updated(now_s, requests, prompt_tokens, footprint, longest_s),
            self.answers + share * (requests / elapsed_s - self.answers),
        )

    def now(self, footprint: Footprint) -> Demand:
        longest_s = LONGEST_WINDOW_SLACKS * footprint.slack_s
        return Demand(self.arrivals.due_rate(footprint.slack_s, longest_s), self.answers)

    def ahead(self, lead_s: float, footprint: Footprint) -> Demand:
        """The demand in lead_s at the steady arrival rates. Answers that run now last for their stay."""
        left, steady = math.exp(-lead_s / footprint.stay_s), self.arrivals.steady_rates()
        answers = left * self.answers + (1 - left) * steady.answers
        return Demand(steady.prompt_tokens, answers)

    def scaled(self, factor: float) -> "OfferedLoad":
        """The load if `factor` times as many requests had arrived at each time."""
        return replace(self, arrivals=self.arrivals.scaled(factor), answers=factor * self.answers)


def _newest_share(elapsed_s: float, constant_s: float, age_s: float) -> float:
    """Weight of the last elapsed_s in an exponential mean over age_s in all, so that weights sum up to 1."""
    return math.expm1(-elapsed_s / constant_s) / math.expm1(-age_s / constant_s)
