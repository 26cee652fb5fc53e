"""Windows of usage limits, and what a request needs of them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from penstock.core.tenants.tenant import LimitedResource, WindowUnit

# Lengths of windows in seconds. The epoch's count leaves out leap seconds.
LENGTHS_S = {"Second": 1, "Minute": 60, "Hour": 3600, "Day": 86_400}
# Units of which a limit is a budget: a client that has spent it cannot wait for the next window.
BUDGET_UNITS = frozenset({"Day", "Month"})


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time. start_s: included. end_s: excluded; both in seconds since the epoch."""

    start_s: int
    end_s: int

    def retry_after_s(self, now_s: float) -> int:
        """Whole seconds until the next window, at least 1."""
        return max(1, ceil(self.end_s - now_s))


def window_at(unit: WindowUnit, now_s: float) -> Window:
    """Return the window of a unit at a time. Windows follow each other without a gap, by UTC."""
    if unit == "Month":
        start = datetime.fromtimestamp(now_s, UTC).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        months = start.year * 12 + start.month
        end = start.replace(year=months // 12, month=months % 12 + 1)
        return Window(int(start.timestamp()), int(end.timestamp()))
    length_s = LENGTHS_S[unit]
    start_s = int(now_s // length_s) * length_s
    return Window(start_s, start_s + length_s)


@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts of the limited resources that requests use. cached_tokens: part of the prompt's."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def of(self, resource: LimitedResource) -> int:
        """Return the amount of a resource."""
        match resource:
            case "Requests":
                return self.requests
            case "PromptTokens":
                return self.prompt_tokens
            case "OutputTokens":
                return self.output_tokens
            case "Tokens":
                return self.prompt_tokens + self.output_tokens


NO_USAGE = Usage()
