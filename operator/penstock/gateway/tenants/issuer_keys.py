"""Keeps the signing keys of one OIDC issuer up to date in the background."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping

from penstock.core.backoff import backoff_s
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.tenants.issuer_documents import FETCH_TIMEOUT_S, IssuerUnavailable
from penstock.gateway.tenants.signing_keys import SigningKey

logger = logging.getLogger(__name__)

# Time between two fetches, in seconds: after it a key that the issuer has withdrawn is no longer accepted.
REFRESH_INTERVAL_S = 600.0
# Pauses after fetches that failed.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# Age up to which keys of an issuer that cannot be reached are used: its outage does not cut off clients whose
# tokens are valid, and a key that it has withdrawn meanwhile is not trusted for ever.
MAX_AGE_S = 24 * 3600.0
# Least time between two fetches that tokens with an unknown `kid` cause. Anybody can make such tokens.
MIN_INTERVAL_S = 30.0
# Most requests that wait for a fetch at a time, each for FETCH_TIMEOUT_S at most.
MAX_WAITING = 100

Fetch = Callable[[], Awaitable[Mapping[str, SigningKey]]]


class IssuerKeys:
    """The keys of one issuer.

    issuer: its URL, for the log. fetch: raises IssuerUnavailable. on_withdrawal: called when the issuer has
    withdrawn a key. now: the monotonic clock. Needs a running event loop, and fetches until `close`.
    """

    def __init__(
        self,
        issuer: str,
        fetch: Fetch,
        on_withdrawal: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._on_withdrawal = on_withdrawal
        self._now = now
        self._keys: Mapping[str, SigningKey] = {}
        self._fetched_s = -math.inf
        self._failures = self._waiting = 0
        self._fetching = self._start_fetch()
        self._fetch_again = asyncio.create_task(self._fetch_periodically())

    def close(self) -> None:
        """Stop fetching."""
        self._fetch_again.cancel()
        self._fetching.cancel()

    async def find(self, key_id: str) -> SigningKey | None:
        """Return the key with this `kid`; None: the issuer has none.

        Waits for a fetch if the key is unknown and a fetch may bring it. Raises RequestError if no
        keys are known.
        """
        if (key := self._usable_keys().get(key_id)) is not None:
            return key
        if self._fetching.done() and self._now() - self._started_s >= MIN_INTERVAL_S:
            self._fetching = self._start_fetch()
        if not self._fetching.done():
            await self._wait(self._fetching)
        keys = self._usable_keys()
        if not keys:
            raise _unavailable()
        return keys.get(key_id)

    async def _fetch_periodically(self) -> None:
        while True:
            await asyncio.wait((self._fetching,))
            pause_s = backoff_s(self._failures - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s if self._failures else REFRESH_INTERVAL_S)
            if self._fetching.done():
                self._fetching = self._start_fetch()

    def _usable_keys(self) -> Mapping[str, SigningKey]:
        """The last keys, while they are not older than MAX_AGE_S."""
        return self._keys if self._now() - self._fetched_s < MAX_AGE_S else {}

    async def _wait(self, fetching: asyncio.Task[None]) -> None:
        if self._waiting >= MAX_WAITING:
            raise _unavailable()
        self._waiting += 1
        try:
            await asyncio.wait((fetching,), timeout=FETCH_TIMEOUT_S)
        finally:
            self._waiting -= 1

    def _start_fetch(self) -> asyncio.Task[None]:
        self._started_s = self._now()
        return asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            keys = await self._fetch()
        except IssuerUnavailable as error:
            if not self._failures:
                logger.warning("the keys of the issuer %s are not fetched: %s", self._issuer, error)
            self._failures += 1
            return
        except Exception:
            logger.exception("the fetch of the keys of the issuer %s failed", self._issuer)
            self._failures += 1
            return
        if self._failures:
            logger.info("the keys of the issuer %s are fetched again", self._issuer)
        self._failures, self._fetched_s = 0, self._now()
        before, self._keys = self._keys, keys
        if any(keys.get(key_id) != key for key_id, key in before.items()):
            self._on_withdrawal()


def _unavailable() -> RequestError:
    return RequestError(
        503,
        "the keys of the token's issuer are not available at present; send the request again",
        retry_after_s=RETRY_AFTER_S,
        reason="issuer_unavailable",
    )
