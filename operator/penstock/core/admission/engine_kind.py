"""Model of the times of one revision's engines, which are of one kind."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.engine_time.first_token import FirstTokenModel, PromptWork

# Interval at which engines follow a change of their model, in seconds: each of them takes 2 us. Until there
# are FIRST_WINDOWS answers, they follow each of them.
FOLLOW_S, FIRST_WINDOWS = 0.5, 20


@dataclass(slots=True, eq=False)
class EngineKind:
    """Model that engines share. listeners: by pod, called when the model has changed."""

    model: FirstTokenModel = FirstTokenModel()  # noqa: RUF009 - immutable
    listeners: dict[str, Callable[[], None]] = field(default_factory=dict)
    _followed_s: float = float("-inf")

    def first_token(self, work: PromptWork, took_s: float, now: float) -> None:
        """Add an answer. took_s: at an engine of usual speed."""
        self.model = self.model.after_first_token(work, took_s)
        if self.model.fit.windows < FIRST_WINDOWS or now >= self._followed_s + FOLLOW_S:
            self._followed_s = now
            for follow in self.listeners.values():
                follow()
