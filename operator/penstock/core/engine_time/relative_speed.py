"""Speed of one engine against others of its kind, by its times to the first token."""

import math
from dataclasses import dataclass

# Weight of the earlier answers with each new one: a mean over about fifty.
MEMORY = 0.98
# Answers that are assumed to have taken as long as those of the others. With few of its own, an engine that
# was slow once would get no further request, and could not show that it is as fast as the others.
ASSUMED_ANSWERS = 10.0
# Bounds of the factor, and of what one answer says.
MAX_FACTOR, MAX_OF_ANSWER = 16.0, 4.0


@dataclass(slots=True)
class RelativeSpeed:
    """Sum of the logarithms of measured over predicted times, and the number of answers; both decay."""

    logarithms: float = 0.0
    answers: float = 0.0

    @property
    def factor(self) -> float:
        """Times of this engine as a multiple of the others'."""
        factor = math.exp(self.logarithms / (self.answers + ASSUMED_ANSWERS))
        return min(MAX_FACTOR, max(1 / MAX_FACTOR, factor))

    def note(self, ratio: float) -> None:
        """Add an answer. ratio: its time over the one that is predicted for an engine of the kind."""
        bound = math.log(MAX_OF_ANSWER)
        found = min(bound, max(-bound, math.log(max(ratio, 1e-9)) - math.log(self.factor)))
        # The bound is on the change of the factor, so that the factor itself can become larger than it.
        self.logarithms = MEMORY * self.logarithms + found + math.log(self.factor)
        self.answers = MEMORY * self.answers + 1
