"""Bodies of which only a part has arrived: bounds their number and their bytes."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class ArrivingBody:
    """A body that a client is sending. give_up: stops reading it. num_bytes: that arrived so far."""

    give_up: Callable[[], None]
    num_bytes: int = 0
    is_given_up: bool = False


@dataclass(slots=True)
class ArrivingBodies:
    """All bodies that are arriving, oldest first. At a bound the oldest one is given up.

    Clients that send quickly are never the oldest for long, so the bounds hit those that do not.
    """

    max_bodies: int
    max_bytes: int
    num_bytes: int = 0
    _bodies: dict[ArrivingBody, None] = field(default_factory=dict)

    def add(self, body: ArrivingBody) -> None:
        """Count a body whose first bytes are awaited."""
        self._bodies[body] = None
        self._give_up_oldest()

    def grow(self, body: ArrivingBody, num_bytes: int) -> None:
        """Count bytes that have arrived."""
        if body in self._bodies:
            body.num_bytes += num_bytes
            self.num_bytes += num_bytes
            self._give_up_oldest()

    def remove(self, body: ArrivingBody) -> None:
        """Count a body no more: it is complete, or was given up."""
        if body in self._bodies:
            del self._bodies[body]
            self.num_bytes -= body.num_bytes

    def _give_up_oldest(self) -> None:
        while len(self._bodies) > self.max_bodies or self.num_bytes > self.max_bytes:
            oldest = next(iter(self._bodies))
            self.remove(oldest)
            oldest.is_given_up = True
            oldest.give_up()
