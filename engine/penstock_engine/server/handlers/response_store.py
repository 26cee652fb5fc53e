"""Keeps responses in memory, so that they can be read, cancelled and continued."""

import asyncio
import json
import secrets
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_engine.contract.wire import RESPONSE_ID, RESPONSE_ID_BYTES
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import Json, encode

# Limits of the store. Beyond either, the oldest finished responses are dropped.
MAX_RESPONSES = 1024
MAX_BYTES = 256 * 2**20  # of responses and their conversations, as JSON


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A stored response. body: its JSON. items: the conversation including it, as a JSON list."""

    status: str
    body: bytes
    items: bytes

    @property
    def is_running(self) -> bool:
        return self.status in ("queued", "in_progress")

    @property
    def num_bytes(self) -> int:
        return len(self.body) + len(self.items)


class ResponseStore:
    """A bounded store of responses, and the tasks of background responses.

    Start and cancel tasks on the event loop. Responses can be read and put on any thread.
    """

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._stored: dict[str, StoredResponse] = {}  # oldest first
        self._num_bytes = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def new_id(self, proposed: str | None = None) -> str:
        """Returns a random response id, which clients can neither choose nor guess.

        proposed: an id of a gateway, of which the new one has the key of the engine's pod.
        """
        found = RESPONSE_ID.fullmatch(proposed or "")
        key = None if found is None else found["key"]
        return f"resp_{secrets.token_hex(RESPONSE_ID_BYTES)}{key or ''}"

    def get(self, response_id: str) -> StoredResponse:
        """Returns a stored response. Raises RequestError (404) if it is unknown or was dropped."""
        stored = self._stored.get(response_id)
        if stored is None:
            message = f"Response with id '{response_id[:128]}' not found."
            raise RequestError(404, message, param="response_id")
        return stored

    def history(self, response_id: str, max_bytes: int) -> list[Json]:
        """Returns the items of a conversation up to the end of a response.

        max_bytes: maximum size of the items as JSON. Raises RequestError if the response is unknown,
        still running or too large.
        """
        try:
            stored = self.get(response_id)
        except RequestError as error:
            param = "previous_response_id"
            raise RequestError(error.status, error.message, param=param) from error
        if stored.is_running:
            raise RequestError(
                400,
                "the previous response is still running: wait until it has ended",
                param="previous_response_id",
            )
        if len(stored.items) > max_bytes:
            raise RequestError(
                413, "the conversation is too large to be continued: begin another",
                param="previous_response_id",
            )  # fmt: skip
        items: list[Json] = json.loads(stored.items)
        return items

    def put(self, body: Json, items: Sequence[Json]) -> None:
        """Stores a response, or its new state. A cancelled response stays cancelled."""
        response_id = body["id"]
        new = StoredResponse(body["status"], encode(body), encode(list(items)))
        with self._lock:
            old = self._stored.get(response_id)
            if old is not None and old.status == "cancelled":
                return
            self._stored[response_id] = new
            self._num_bytes += new.num_bytes - (0 if old is None else old.num_bytes)
            self._drop_oldest()

    def start(self, response_id: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts the task that computes a response and puts it."""
        task = self._tasks[response_id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(response_id))
        return task

    async def cancel(self, response_id: str) -> bytes:
        """Cancels a response, waits for its task to end, and returns its body. Raises RequestError."""
        stored = self.get(response_id)
        if not stored.is_running:
            raise RequestError(
                400, "only a background response that is still running can be cancelled",
                param="response_id",
            )  # fmt: skip
        self.put(json.loads(stored.body) | {"status": "cancelled"}, json.loads(stored.items))
        await self._cancel_tasks([self._tasks[response_id]] if response_id in self._tasks else [])
        return self.get(response_id).body

    async def close(self) -> None:
        """Cancels all tasks and waits for their end."""
        await self._cancel_tasks(list(self._tasks.values()))

    async def _cancel_tasks(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop_oldest(self) -> None:
        """Drops the oldest finished responses beyond the limits. The caller holds the lock."""
        ended = [each for each, stored in self._stored.items() if not stored.is_running]
        for response_id in ended:
            if len(self._stored) <= self._max_responses and self._num_bytes <= self._max_bytes:
                return
            self._num_bytes -= self._stored.pop(response_id).num_bytes
