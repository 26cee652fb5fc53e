"""Counts of events among requests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of events (such as errors) among a number of requests on one side of a comparison."""

    requests: int = 0
    events: int = 0

    def add(self, other: "Counts") -> "Counts":
        return Counts(self.requests + other.requests, self.events + other.events)

    @property
    def share(self) -> float:
        return self.events / self.requests if self.requests else 0.0


NONE = Counts()
