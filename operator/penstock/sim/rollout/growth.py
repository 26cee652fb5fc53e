"""How the traffic of a canary and of its control pods grows with the weight that it earned."""

import math
from dataclasses import dataclass, field

# From the moment that a pod is asked for until it takes requests.
POD_START_S = 60.0


@dataclass(slots=True)
class Growth:
    """Of both sides alike, as multiples of what each had at the start. pods: of each side, that are
    ready; a pod of the start takes all that there was then, and no later one takes more."""

    factor: float = 1.0
    pods: int = 1
    coming: list[tuple[float, int]] = field(default_factory=list)

    def look(self, now_s: float, earned: float) -> None:
        """earned: the weight by the judge, as a multiple of the first one."""
        wanted = math.ceil(earned - 1e-9)
        if wanted > max([self.pods, *(pods for _, pods in self.coming)]):
            self.coming.append((now_s + POD_START_S, wanted))
        self.pods = max([self.pods, *(pods for at_s, pods in self.coming if at_s <= now_s)])
        self.factor = min(earned, float(self.pods))
