"""The shared store in a server of Redis or Valkey."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import NoScriptError, RedisError

from penstock.clients.machine.clock import monotonic
from penstock.gateway.quotas.script import SCRIPT
from penstock.gateway.quotas.store import StoreFailed
from penstock.gateway.quotas.store_call import PREFIX, Caller, Reply, StoreCall

# Time limit of a call. A server in the same cluster takes 0.3 ms; one whose processor is busy should not be
# taken for down, and requests may wait for two calls.
CALL_TIMEOUT_S = 0.25
# Time after the limit within which an event loop that is not kept by anything finds out.
MAX_LATE_S = 0.01
# Time limit for a piece of the ledger, which no request waits for, and its hours.
READ_TIMEOUT_S = 10.0
# Time limit for a connection.
MAX_CONNECT_S = 1.0
READ_HOURS = 200


class PasswordFile(CredentialProvider):
    """The password of a user in a file, which is read for each connection, as Secrets are renewed."""

    def __init__(self, path: Path, user: str | None) -> None:
        self._path = path
        self._user = user

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Read the password."""
        password = self._path.read_text().strip()
        return (password,) if self._user is None else (self._user, password)


class RedisStore:
    """A connection to Redis. url: without a password. gateway: a name that no other process has.

    timeout_s: of a call.
    """

    def __init__(
        self,
        url: str,
        gateway: str,
        password_file: Path | None = None,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self._gateway = gateway
        self._timeout_s = timeout_s
        self._redis = _connect(url, password_file, timeout_s=timeout_s)
        self._reader = _connect(url, password_file, timeout_s=READ_TIMEOUT_S)
        self._script_id = ""
        self._num_calls = self._answered = self._outage_ms = 0
        self._since_s = 0.0

    async def call(self, call: StoreCall) -> Reply:
        """Execute a call. Raises StoreFailed."""
        self._num_calls = number = self._num_calls + 1
        caller = Caller(self._gateway, number, self._answered, self._since_s, self._outage_ms)
        body = call.encode(caller)
        started_s = monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = Reply.decode(await self._run(body))
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            is_late = monotonic() > started_s + self._timeout_s + MAX_LATE_S
            raise StoreFailed(type(error).__name__, is_late=is_late) from error
        self._answered, self._since_s = number, reply.now_s
        self._outage_ms = reply.outage_ms
        return reply

    async def _run(self, body: bytes) -> Sequence[Any]:
        if self._script_id:
            try:
                found: Sequence[Any] = await self._redis.evalsha(self._script_id, 0, body)
                return found
            except NoScriptError:  # the server was started again
                pass
        self._script_id = await self._redis.script_load(SCRIPT)
        found = await self._redis.evalsha(self._script_id, 0, body)
        return found

    async def read(self, keys: Sequence[str]) -> list[Mapping[str, int]]:
        """Return the fields of ledger entries. Raises StoreFailed."""
        found: list[Mapping[str, int]] = []
        try:
            for start in range(0, len(keys), READ_HOURS):
                async with self._reader.pipeline(transaction=False) as pipeline:
                    for key in keys[start : start + READ_HOURS]:
                        pipeline.hgetall(PREFIX + key)
                    entries = await pipeline.execute()
                found += [{name: int(text) for name, text in each.items()} for each in entries]
        except ValueError as error:
            raise StoreFailed(f"a field of a key {PREFIX}… has no number: {error}") from error
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreFailed(f"{type(error).__name__}: {error}") from error
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
        await self._reader.aclose()


def _connect(url: str, password_file: Path | None, *, timeout_s: float) -> Any:
    """A client that connects when it is used, and repeats nothing."""
    client: Any = Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=min(timeout_s, MAX_CONNECT_S),
        retry=Retry(NoBackoff(), 0),
        max_connections=4,
        decode_responses=True,
    )
    if password_file is not None:
        options = client.connection_pool.connection_kwargs
        options["credential_provider"] = PasswordFile(password_file, options.pop("username", None))
    return client
