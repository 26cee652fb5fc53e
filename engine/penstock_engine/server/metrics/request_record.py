"""Facts about the choices of a request, for metrics, the request log and deadlines."""

from dataclasses import dataclass, field

from penstock_engine.server.transport.deadlines import Phase


@dataclass(slots=True)
class PromptChoices:
    """Counts the choices of a prompt that have ended, for metrics that observe each prompt once."""

    number: int = 1
    _num_ended: int = 0
    _longest: int = 0

    def end(self, num_tokens: int) -> int:
        """Counts a choice that has ended. num_tokens: of the answer; 0 if it failed.

        Returns the length of the longest answer once all have ended; 0 before, or if all have failed.
        """
        self._num_ended += 1
        self._longest = max(self._longest, num_tokens)
        return self._longest if self._num_ended == self.number else 0


@dataclass(slots=True)
class RequestRecord:
    """Facts about a choice that only the server knows. All times are on now_s()'s clock, in seconds."""

    arrival_s: float  # arrival of the request, before tokenizing
    max_tokens: int
    choices: PromptChoices = field(default_factory=PromptChoices)  # choices of the same prompt
    deadline_s: float | None = None
    adapter: str = ""
    tpot_s: float | None = None  # requested maximum time between tokens, as in `Sequence`
    last_token_s: float | None = None  # time of the latest token
    is_stopped: bool = False  # whether a stop string ended it, which the engine sees as an abort
    timeout_phase: Phase | None = None  # phase in which the deadline ended it; None if it did not
    trace_id: str = ""  # of its span; empty if that is not recorded

    def remaining_s(self, now_s: float) -> float | None:
        """Returns the seconds until the deadline; None without a deadline."""
        return None if self.deadline_s is None else max(0.0, self.deadline_s - now_s)

    def is_past_deadline(self, now_s: float) -> bool:
        return self.deadline_s is not None and now_s >= self.deadline_s
