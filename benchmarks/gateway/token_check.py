"""Processor time that a gateway takes to check bearer tokens, and that a flood of invalid ones takes.

    python -m benchmarks.gateway.token_check [--tokens 1000]

For each algorithm: the check of a valid token, of one with a wrong signature, and of one that was verified
before; then 10,000 different tokens with a wrong signature from one client within 10 s of the gateway's
clock.
Bars: a token that was verified before takes at most 10 us, and the flood at most 10 % of a processor.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks.options import option_parser
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from tests.support.oidc_issuer import AUDIENCE, PrivateKey, jwk, rsa_key, sign

from penstock.clients.machine.clock import thread_cpu_time
from penstock.core.tenants.tenant import Jwt, Tenant
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.bearer_tokens import BearerTokens
from penstock.gateway.tenants.proven_identity import ProvenIdentity, TokenRefusal
from penstock.gateway.tenants.signing_keys import SigningKey, read_keys
from penstock.gateway.tenants.token_reviews import no_review

ISSUER, GROUP = "https://issuer", "search"
MAX_REMEMBERED_US, MAX_FLOOD = 10.0, 0.1
FLOOD_TOKENS, FLOOD_S = 10_000, 10.0
# Base64url characters at the end of a token that are replaced.
WRONG = b"A" * 20

KEYS: dict[str, Callable[[], PrivateKey]] = {
    "RS256, 2048 bits": lambda: rsa_key(2048),
    "RS256, 4096 bits": lambda: rsa_key(4096),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


class Checker:
    """Checks tokens of one key at a time that stands still. tokens: as the gateway has them."""

    def __init__(self, key: PrivateKey) -> None:
        self._key = key
        self._keys = read_keys(json.dumps({"keys": [jwk(key, "one")]}).encode())
        self.now_s = 0.0
        self.tokens = BearerTokens(
            no_review, audience="x", now=lambda: self.now_s, fetch=self._fetch
        )
        identity = Jwt("sso", ISSUER, AUDIENCE, "groups", GROUP)
        self.tokens.replace([Tenant("search", 1, (identity,))])

    async def _fetch(self, *_: str) -> Mapping[str, SigningKey]:
        return self._keys

    def make(self, number: int) -> bytes:
        """A token of the size of real ones, with 20 groups."""
        now_s = int(time.time())
        groups = [GROUP, *(f"group-{each}" for each in range(20))]
        claims = {"iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 3600}
        claims |= {"sub": "0" * 36, "email": "someone@example.com", "jti": str(number)}
        return sign(claims | {"groups": groups}, self._key, {"kid": "one"})

    async def outcome(self, token: bytes, client: str) -> ProvenIdentity | TokenRefusal | None:
        """None: the client has sent too many."""
        try:
            return await self.tokens.verify(token, client)
        except RequestError:
            return None


async def check_times_us(key: PrivateKey, num_tokens: int) -> tuple[float, float, float]:
    """Microseconds for a valid token, for one with a wrong signature, and for one that is remembered."""
    checker = Checker(key)
    valid = [checker.make(number) for number in range(num_tokens)]
    invalid = [token[: -len(WRONG)] + WRONG for token in valid]
    await checker.outcome(invalid[0], "")  # fetches the key
    times_us = []
    for tokens, is_valid in ((valid, True), (invalid, False)):
        started_s = thread_cpu_time()
        for number, token in enumerate(tokens):
            outcome = await checker.outcome(token, str(number))
            assert isinstance(outcome, ProvenIdentity) == is_valid
        times_us.append((thread_cpu_time() - started_s) / num_tokens * 1e6)
    started_s = thread_cpu_time()
    for token in valid * 10:
        assert checker.tokens.find_remembered(token) is not None
    times_us.append((thread_cpu_time() - started_s) / num_tokens / 10 * 1e6)
    checker.tokens.close()
    return times_us[0], times_us[1], times_us[2]


async def flood(key: PrivateKey) -> tuple[int, float]:
    """Number of signatures that are checked for a flood of one client, and the share of a processor."""
    checker = Checker(key)
    token = checker.make(0)
    head, _, signature = token.rpartition(b".")
    num_checked, started_s = 0, thread_cpu_time()
    for number in range(FLOOD_TOKENS):
        checker.now_s = number / FLOOD_TOKENS * FLOOD_S
        wrong = head + b".%020d" % number + signature[20:]
        num_checked += await checker.outcome(wrong, "198.51.100.1") is not None
    checker.tokens.close()
    return num_checked, (thread_cpu_time() - started_s) / FLOOD_S


async def measure(num_tokens: int) -> bool:
    """Print all figures. Returns whether the bars are met."""
    is_met = True
    print(f"{'':18} {'valid':>10} {'invalid':>10} {'remembered':>12} {'flood':>8}")
    for name, make_key in KEYS.items():
        key = make_key()
        valid_us, invalid_us, remembered_us = await check_times_us(key, num_tokens)
        num_checked, share = await flood(key)
        is_met &= remembered_us <= MAX_REMEMBERED_US and share <= MAX_FLOOD
        print(
            f"{name:18} {valid_us:7.0f} us {invalid_us:7.0f} us {remembered_us:9.2f} us {share:8.1%}"
            f" of a processor, {num_checked} of {FLOOD_TOKENS} checked"
        )
    return is_met


def main() -> None:
    options = option_parser(__doc__, tokens=1000).parse_args()
    if not asyncio.run(measure(options.tokens)):
        sys.exit("a bar is missed")


if __name__ == "__main__":
    main()
