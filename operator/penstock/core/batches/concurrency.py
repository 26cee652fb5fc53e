"""Number of lines that run at a time: additive increase, multiplicative decrease.

Lines are of the lowest class, so they wait or are refused where interactive requests need the engines. The
window grows by one line per window of answers, and halves when one is refused, as TCP's does.
"""

from dataclasses import dataclass

# Lines of a batch that run at first: few, as engines may have to start for them.
INITIAL_WINDOW = 4.0
# Lines at a time of one batch: as many sequences as a replica runs by default.
MAX_WINDOW = 256.0
# s: pause after a refusal without Retry-After, or a lost connection, doubled with each further one up to the
# longest: a gateway is back within seconds, an engine within minutes.
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
# s: longest Retry-After that is followed at once. A limit may be raised before its window ends, so a batch
# asks again with one line.
MAX_RETRY_AFTER_S = 600.0


@dataclass(slots=True)
class LineWindow:
    """Bound on the lines of a batch that run at a time. resume_s: no line is sent before this time."""

    size: float = INITIAL_WINDOW
    resume_s: float = 0.0
    _pause_s: float = FIRST_PAUSE_S

    @property
    def num_lines(self) -> int:
        return int(self.size)

    def note_answer(self) -> None:
        """A line was answered with its result."""
        self.size = min(MAX_WINDOW, self.size + 1 / self.size)
        self._pause_s = FIRST_PAUSE_S

    def note_refusal(self, now_s: float, sent_s: float, retry_after_s: float | None) -> None:
        """A line was refused, or got no answer.

        sent_s: when it was sent. Lines that were sent before the last refusal and are refused too say nothing
        new, so they do not halve the window again.
        """
        if sent_s < self.resume_s:
            if retry_after_s is not None:
                self.resume_s = max(self.resume_s, now_s + min(retry_after_s, MAX_RETRY_AFTER_S))
            return
        self.size = max(1.0, self.size / 2)
        pause_s = self._pause_s
        if retry_after_s is not None:
            pause_s = min(max(retry_after_s, pause_s), MAX_RETRY_AFTER_S)
        self.resume_s = now_s + pause_s
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
