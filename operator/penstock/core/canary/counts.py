"""How many of how many."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """events among requests on one side."""

    requests: int = 0
    events: int = 0

    def add(self, other: "Counts") -> "Counts":
        return Counts(self.requests + other.requests, self.events + other.events)

    @property
    def share(self) -> float:
        return self.events / self.requests if self.requests else 0.0


NONE = Counts()
