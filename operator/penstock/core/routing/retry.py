"""Retry policy: which failed attempts are repeated on another engine, and how often.

Any attempt could be repeated: nothing of it has reached the client, and generation has no side effects.
Retries are limited because the request itself may be the cause. `charge.CHARGES` has the policy of each
failure. A failure that the request may have caused is repeated once, on an engine without recent failures.
So a request that breaks engines reaches at most two.
"""

from collections.abc import Sequence

from penstock.core.routing.charge import CHARGES, Ending

MAX_REPEATS = 1  # of attempts whose policy is Once
# Answers 502 and 503 to an adapter's version, before another version is tried. With one, a full engine would
# be taken for a bad version. If there is one retry alone it is with the other version all the same: a bad
# version would never be found.
MAX_UNAVAILABLE = 2


def may_retry(failures: Sequence[Ending], max_attempts: int) -> bool:
    """Whether to try another engine. failures: of the request's attempts so far."""
    policies = [CHARGES[each].retry for each in failures]
    if "Never" in policies or policies.count("Once") > MAX_REPEATS:
        return False
    return len(policies) - policies.count("Waiting") < max_attempts


def needs_budget(failures: Sequence[Ending]) -> bool:
    """Whether the next attempt is a retry that the retry budget bounds. failures: as for `may_retry`."""
    return any(CHARGES[each].retry != "Moved" for each in failures)


def tries_other_version(failures: Sequence[Ending], max_attempts: int) -> bool:
    """Whether there is a next attempt, and it is with another version of the adapter, if there is one.

    Its answer shows that the request was not at fault. failures: as for `may_retry`, at least one.
    """
    if not may_retry(failures, max_attempts):
        return False
    last = failures[-1]
    if last is Ending.COPY_UNAVAILABLE:
        return failures.count(last) == min(MAX_UNAVAILABLE, max_attempts - 1)
    return CHARGES[last].retry == "Once"
