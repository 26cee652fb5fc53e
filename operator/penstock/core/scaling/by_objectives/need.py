"""Need: the replicas for the load one start-up ahead, and those that the load keeps busy now."""

import math
from dataclasses import dataclass

from penstock.core.scaling.by_objectives.forecast import WARM_UP_S
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.learned.footprint import Footprint

# A load that grows may have a margin up to this multiple of its forecast, though it was never that large.
BEYOND = 1.2


@dataclass(frozen=True, slots=True)
class ShownUnit:
    """Unit of the replicas in reasons. factor: its number for one replica of the forecast's unit."""

    factor: float = 1.0
    name: str = "replicas"

    def text(self, replicas: float) -> str:
        return f"{self.factor * replicas:.2f}"

    def rounded_up(self, replicas: float) -> str:
        return f"{math.ceil(100 * self.factor * replicas) / 100:.2f}"


@dataclass(frozen=True, slots=True)
class Need:
    """Needed replicas, as real numbers.

    replicas: needed one start-up ahead. replicas_now: busy now. note, forecast_note: reasons for the trail.
    """

    replicas: float
    replicas_now: float
    note: str
    forecast_note: str

    @classmethod
    def of(
        cls,
        state: ObjectivesState,
        footprint: Footprint,
        *,
        loss: float,
        lead_s: float,
        unit: ShownUnit,
    ) -> "Need":
        """Compute the need.

        loss: fraction of the load that may be beyond the replicas. lead_s: time until a pod that is
        requested now serves. unit: of the numbers in the reasons.
        """
        now, errors = state.forecast.now, state.forecast.errors
        upper = state.forecast.upper(loss, lead_s=lead_s, noise=footprint.noise)
        # More than was ever needed is not kept ready: that would be a guess.
        margin = min(upper, max(BEYOND * now.forecast, errors.peak) + footprint.noise)
        if now.at_s < state.forecast.since_s + WARM_UP_S:  # its errors are unknown
            margin = now.forecast
        corrected, late = state.correction.factor * margin, ""
        if state.correction.factor >= 1.005:
            late = f", x {state.correction.factor:.2f} for late requests that the load does not explain"
        standing = state.backlog.standing(lead_s)
        waiting, waits = 0.0, ""
        if standing is not None:
            waiting = footprint.waiting_replicas(standing.prompt_tokens, standing.requests, lead_s)
            waits = f", and {unit.text(waiting)} for the backlog" if waiting >= 0.005 else ""
        return cls(
            replicas=corrected + waiting,
            replicas_now=now.load + waiting,
            note=f"{unit.text(margin)} {unit.name} serve all but {loss:.2%} of the forecast load"
            f"{late}{waits}: need {unit.rounded_up(corrected + waiting)}",
            forecast_note=f"the load keeps {unit.text(now.load)} {unit.name} busy, and "
            f"{unit.text(now.forecast)} in {lead_s:.0f} s by its forecast",
        )
