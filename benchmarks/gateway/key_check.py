"""Time of the check of an API key by kind of key, and memory of the keys of a gateway.

    python -m benchmarks.gateway.key_check [--tries 1000000]

The gateway has 100 tenants with 1,000 keys each, read from Secrets as its watch reads them. Kinds of keys are
tried in turn: right ones, and those that are refused, wrong secrets by the number of right characters at
their beginning.
Bars: the medians of wrong secrets differ by at most 5 %, a check takes at most 20 us, and the keys take at
most 50 MiB of the process. Whether there is a key with an id is no secret, as ids are none.
"""

import asyncio
import base64
import contextlib
import random
import statistics
import sys
import time
from pathlib import Path

from benchmarks.options import option_parser

from penstock.core.tenants.api_key import ApiKey, make_api_key, store_key
from penstock.core.tenants.tenant import ApiKeys, Tenant
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.api_key_index import index_keys, reduce_secret
from penstock.gateway.tenants.authenticator import Authenticator
from penstock.gateway.tenants.bearer_tokens import BearerTokens
from penstock.gateway.tenants.token_reviews import no_review

NUM_TENANTS, NUM_KEYS = 100, 1000
MAX_DIFFERENCE, MAX_CHECK_US, MAX_MEMORY_MIB = 0.05, 20.0, 50.0
NOW_S = 1_000_000.0


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def secret(number: int, rng: random.Random) -> tuple[dict[str, object], list[ApiKey], list[ApiKey]]:
    """A Secret as the API server lists it, its valid keys, and those that have expired: one of ten."""
    valid, expired, data = [], [], {}
    for position in range(NUM_KEYS):
        key = make_api_key(rng.randbytes(40))
        is_expired = position % 10 == 0
        expires_s = NOW_S - 1 if is_expired else NOW_S + 1
        stored = store_key(key, rng.randbytes(16), f"key {position}", 0.0, expires_s)
        data[key.id] = base64.b64encode(stored.encode().encode()).decode()
        (expired if is_expired else valid).append(key)
    metadata = {
        "name": f"tenant-{number}", "namespace": "penstock-keys", "resourceVersion": str(number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return {"metadata": metadata, "data": data}, valid, expired


def authenticator(rng: random.Random) -> tuple[Authenticator, list[ApiKey], list[ApiKey], float]:
    """A gateway's part that checks keys, some valid keys, some expired ones, and the memory of all keys."""
    tokens = BearerTokens(no_review, audience="")
    made = Authenticator(tokens, unix_now=lambda: NOW_S)
    first = [secret(number, rng) for number in range(2)]
    valid = [key for _, keys, _ in first for key in keys]
    expired = [key for _, _, keys in first for key in keys]
    before_mib = resident_mib()
    reduced = [reduce_secret(each) for each, _, _ in first]
    reduced += [reduce_secret(secret(number, rng)[0]) for number in range(2, NUM_TENANTS)]
    made.keys.publish(index_keys(reduced))
    made.tenants.publish(
        [Tenant(f"t{n}", 1, (ApiKeys("keys", f"tenant-{n}"),)) for n in range(NUM_TENANTS)],
        is_open=False,
    )
    memory_mib = resident_mib() - before_mib  # with the reduced Secrets, which a watch keeps
    return made, valid, expired, memory_mib


def credentials(
    valid: list[ApiKey], expired: list[ApiKey], rng: random.Random
) -> dict[str, list[str]]:
    """Keys of each kind."""

    def wrong(num_right: int) -> list[str]:
        other = [make_api_key(rng.randbytes(40)) for _ in valid]
        return [
            f"psk_{key.id}_{key.secret[:num_right]}{bad.secret[num_right:]}"
            for key, bad in zip(valid, other, strict=True)
        ]

    return {
        "right": [key.text for key in valid],
        "unknown id": [make_api_key(rng.randbytes(40)).text for _ in valid],
        "expired": [key.text for key in expired],
        **{f"wrong from character {number + 1}": wrong(number) for number in (0, 8, 21, 42)},
    }


async def times_us(
    checked: Authenticator, kinds: dict[str, list[str]], num_tries: int
) -> dict[str, float]:
    """The median time of a check by kind, in microseconds."""
    times: dict[str, list[int]] = {kind: [] for kind in kinds}
    headers = {
        kind: [[(b"authorization", b"Bearer " + key.encode())] for key in keys]
        for kind, keys in kinds.items()
    }
    drawn = random.Random(2)
    names = list(kinds)
    for _ in range(
        num_tries
    ):  # in random order: a key that was tried just before is still in the caches
        kind = drawn.choice(names)
        request = drawn.choice(headers[kind])
        started_ns = time.perf_counter_ns()
        with contextlib.suppress(RequestError):
            await checked.authenticate(request, "", "")
        times[kind].append(time.perf_counter_ns() - started_ns)
    return {kind: statistics.median(each) / 1000 for kind, each in times.items()}


def difference(medians: dict[str, float]) -> float:
    """Largest difference of the medians of wrong secrets, as a share of the smallest."""
    wrong = [each for kind, each in medians.items() if kind.startswith("wrong")]
    return max(wrong) / min(wrong) - 1


def main() -> None:
    options = option_parser(__doc__, tries=1_000_000).parse_args()
    rng = random.Random(1)
    checked, valid, expired, memory_mib = authenticator(rng)
    print(f"memory of {NUM_TENANTS} x {NUM_KEYS} keys: {memory_mib:.1f} MiB")
    medians = asyncio.run(times_us(checked, credentials(valid, expired, rng), options.tries))
    for kind, median_us in medians.items():
        print(f"{kind:26} {median_us:6.2f} us in the median")
    differ = difference(medians)
    print(f"wrong secrets differ by {differ:.1%}")
    is_met = differ <= MAX_DIFFERENCE and memory_mib <= MAX_MEMORY_MIB
    if not is_met or max(medians.values()) > MAX_CHECK_US:
        sys.exit("a bar is missed")


if __name__ == "__main__":
    main()
