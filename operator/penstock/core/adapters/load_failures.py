"""Back-off of adapters whose loads fail. Operator and gateways each keep their own."""

from collections.abc import Mapping
from dataclasses import dataclass

# Pause after the first failed load and the longest one, in seconds. A load costs an engine disk and
# memory traffic; what failed for its files fails until somebody changes them.
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 300.0
# Engines of a revision that must refuse a version before no other one is asked: then its files are to blame,
# and not an engine, whose mount may be broken.
MIN_REFUSALS = 2


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Consecutive failed loads of one version. reason: what the engine said last."""

    reason: str
    times: int
    retry_at_s: float

    def is_blocking(self, now_s: float) -> bool:
        return now_s < self.retry_at_s


Failures = Mapping[str, LoadFailure]


def after_failure(failures: Failures, engine_name: str, reason: str, now_s: float) -> Failures:
    """Failures with one more of this adapter. The pause doubles with each."""
    times = failures[engine_name].times + 1 if engine_name in failures else 1
    pause_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(times - 1, 16))
    return {**failures, engine_name: LoadFailure(reason, times, now_s + pause_s)}


def after_success(failures: Failures, engine_name: str) -> Failures:
    """Failures without those of this adapter."""
    return {name: failure for name, failure in failures.items() if name != engine_name}


def is_refused_by_all(num_refusals: int, num_engines: int) -> bool:
    """Whether the refusals of some engines hold for all engines of the revision."""
    return num_refusals >= min(MIN_REFUSALS, num_engines)


def blocked(failures: Failures, now_s: float) -> frozenset[str]:
    """Names of the adapters that are not loaded now."""
    return frozenset(name for name, failure in failures.items() if failure.is_blocking(now_s))
