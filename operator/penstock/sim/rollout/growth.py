"""Growth of the traffic of a canary and its control with the weight that the judge gives."""

import math
from dataclasses import dataclass, field

# Seconds from the creation of a pod until it takes requests.
POD_START_S = 60.0


@dataclass(slots=True)
class Growth:
    """Traffic and pods of each side, as multiples of those at the start.

    Each pod takes at most the traffic of the first one. pods: ready pods. coming: (ready time, pods).
    """

    factor: float = 1.0
    pods: int = 1
    coming: list[tuple[float, int]] = field(default_factory=list)

    def update(self, now_s: float, earned: float) -> None:
        """Create pods for the earned weight. earned: the judge's weight, as a multiple of the first one."""
        wanted = math.ceil(earned - 1e-9)
        if wanted > max([self.pods, *(pods for _, pods in self.coming)]):
            self.coming.append((now_s + POD_START_S, wanted))
        self.pods = max([self.pods, *(pods for at_s, pods in self.coming if at_s <= now_s)])
        self.factor = min(earned, float(self.pods))
