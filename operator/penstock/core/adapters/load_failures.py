"""Back-off of adapters whose loads fail. Operator and gateways each keep their own.

Failures outlive the LoraAdapter: one that is deleted and created again is tried no sooner.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from penstock.core.backoff import backoff_s

# Pause after the first failed load and the longest one, in seconds. A load costs an engine disk and
# memory traffic; what failed for its files fails until somebody changes them.
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 300.0
# Engines of a revision that must refuse a version before no other one is asked: then its files are to blame,
# and not an engine, whose mount may be broken.
MIN_REFUSALS = 2
# Time after its back-off for which a failure of what nothing uses is remembered, in seconds, and the most of
# them, which namespaces share. An adapter that comes back after an hour has cost others little.
REMEMBERED_S, MAX_REMEMBERED = 3600.0, 1000


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Consecutive failed loads of one version. reason: what the engine said last."""

    reason: str
    times: int
    retry_at_s: float

    def is_blocking(self, now_s: float) -> bool:
        return now_s < self.retry_at_s


# Names what failed to load and where, such as an adapter's version on one engine.
Key = TypeVar("Key", bound=Hashable)


def after_failure(
    failures: Mapping[Key, LoadFailure], key: Key, reason: str, now_s: float
) -> dict[Key, LoadFailure]:
    """Failures with one more of this load. The pause doubles with each."""
    times = failures[key].times + 1 if key in failures else 1
    pause_s = backoff_s(times - 1, FIRST_PAUSE_S, MAX_PAUSE_S)
    return {**failures, key: LoadFailure(reason, times, now_s + pause_s)}


def after_break(
    failures: Mapping[Key, LoadFailure], key: Key, reason: str, now_s: float
) -> dict[Key, LoadFailure]:
    """Failures with one more load that broke off. The first blocks nothing: the engine may be at fault."""
    if key in failures:
        return after_failure(failures, key, reason, now_s)
    return {**failures, key: LoadFailure(reason, times=0, retry_at_s=now_s)}


def after_success(failures: Mapping[Key, LoadFailure], key: Key) -> dict[Key, LoadFailure]:
    """Failures without those of this load."""
    return {each: failure for each, failure in failures.items() if each != key}


def keep_recent(
    failures: Mapping[Key, LoadFailure],
    is_used: Callable[[Key], bool],
    now_s: float,
    namespace_of: Callable[[Key], str] = lambda _: "",
) -> dict[Key, LoadFailure]:
    """Failures without the old and the surplus ones of loads that nobody may ask for now.

    is_used: whether somebody may ask for the load. namespace_of: its namespace, if there are several: surplus
    is taken from the namespace with the most.
    """
    unused = [
        key
        for key, failure in failures.items()
        if not is_used(key) and now_s < failure.retry_at_s + REMEMBERED_S
    ]
    unused.sort(key=lambda key: failures[key].retry_at_s, reverse=True)
    num_newer: Counter[str] = Counter()
    rank: dict[Key, int] = {}  # in its namespace
    for key in unused:
        rank[key] = num_newer[namespace_of(key)]
        num_newer[namespace_of(key)] += 1
    remembered = set(sorted(unused, key=rank.__getitem__)[:MAX_REMEMBERED])
    return {key: each for key, each in failures.items() if key in remembered or is_used(key)}


def is_refused_by_all(num_refusals: int, num_engines: int) -> bool:
    """Whether the refusals of some engines hold for all engines of the revision."""
    return num_refusals >= min(MIN_REFUSALS, num_engines)


def blocked(failures: Mapping[Key, LoadFailure], now_s: float) -> frozenset[Key]:
    """The loads that are not tried now."""
    return frozenset(key for key, failure in failures.items() if failure.is_blocking(now_s))
