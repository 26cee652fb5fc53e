"""Lists, loads and unloads the LoRA adapters of engines over HTTP.

Penstock's engine and vLLM have the same routes for loads and unloads. Copies are listed by /v1/adapters of
Penstock's engine, and by the entries with a parent in /v1/models of vLLM.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import aiohttp

from penstock.clients.machine.clock import monotonic
from penstock.clients.pods.adapter_list import MAX_LIST_BYTES, parse_copies
from penstock.clients.pods.loop_share import LoopShare
from penstock.clients.pods.session import pod_session, read_bounded
from penstock.clients.pods.shared_slots import SharedSlots
from penstock.core.adapters.replica import Copy
from penstock.core.formats.json_text import parse_json
from penstock.core.observed.lora_engine import LoraRuntime
from penstock.core.runtimes.flag_fields import in_fields

# Time limits in seconds. An engine lists its adapters between two steps. A load waits there for memory, for
# at most 60 s.
LIST_TIMEOUT_S, LOAD_TIMEOUT_S, UNLOAD_TIMEOUT_S = 2.5, 65.0, 10.0
MAX_ERROR_BYTES = 16 << 10
# Requests for lists that are open, or whose answers wait for their turn, at the same time. An answer has up
# to 640 KiB, so those of all namespaces take at most 80 MiB, and those of one 40 MiB. A smaller bound would
# let 64 engines that hang delay the lists of the other engines of their namespace.
MAX_LISTS = 128
# Fraction of the event loop's time for the lists of a namespace, and seconds of it for the request of a list.
# A small or unchanged list takes 0.1 ms besides, one of 1,280 entries 3 ms and the worst one 5 ms. So 250
# engines of a namespace are listed once a second, or 30 with large lists that change.
LIST_FRACTION, LIST_REQUEST_S = 0.1, 0.0003
MAX_MESSAGE_CHARS = 500

# vLLM's words around the cause of a failed load.
_CAUSE_IN_VLLM = re.compile(
    r"Call to add_lora method failed: Worker failed with error '(.*)', please check the stack trace .*",
    re.DOTALL,
)

# vLLM's words, at the beginning, in answers while its engine ends.
_DEAD_ENGINE_IN_VLLM = "EngineCore encountered an issue."

Copies = Mapping[str, Copy]


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """A request to an engine that failed.

    kind: Unreachable: nothing accepts connections; Unanswered: no answer in time, or an unreadable one;
    Busy: the engine says that another try may work; Refused: the adapter is to blame, such as its files.
    reason: one word for programs; the engine's, if it gave one, else the kind. message: a sentence.
    """

    kind: Literal["Unreachable", "Unanswered", "Busy", "Refused"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AdapterList:
    """An engine's list of adapters.

    copies: by their names there. asked_s: when it was asked for. digest: of the list's path and bytes.
    """

    copies: Copies
    asked_s: float
    digest: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of an engine. content: None if it is too large."""

    status: int
    content: bytes | None


class EngineAdapters:
    """Adapters of engines, over one connection pool. An address is host:port. Errors are returned.

    The pool is made for the first request. may_write: whether this process may load and unload, asked before
    each of these requests. now: the monotonic clock. share: of the event loop, for each namespace's lists.
    """

    def __init__(
        self, may_write: Callable[[], bool] = lambda: True, now: Callable[[], float] = monotonic
    ) -> None:
        self._may_write = may_write
        self._now = now
        self._list_slots = SharedSlots(MAX_LISTS)
        self.share = LoopShare(LIST_FRACTION, LIST_REQUEST_S)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def list(
        self, namespace: str, address: str, runtime: LoraRuntime, last: AdapterList | None = None
    ) -> AdapterList | EngineFailure:
        """List the adapters of an engine. The answer is read in a turn of its namespace, whatever it is.

        last: the engine's last list. Its copies are returned again, unread, if the answer is the same.
        """
        path = "/v1/adapters" if runtime == "Penstock" else "/v1/models"
        async with self._list_slots.hold(namespace):
            asked_s = self._now()
            answer = await self._request("GET", f"http://{address}{path}", None, LIST_TIMEOUT_S)
            async with self.share.turn(namespace):
                content = _content_of(answer)
                if isinstance(content, EngineFailure):
                    return content
                digest = hashlib.sha256(path.encode() + content).digest()
                if last is not None and digest == last.digest:
                    return replace(last, asked_s=asked_s)
                try:
                    return AdapterList(parse_copies(runtime, content), asked_s, digest)
                except ValueError as error:
                    message = f"{path} of the engine gives an unreadable list: {error}"
                    return EngineFailure("Unanswered", "Unanswered", message)

    async def load(
        self, namespace: str, address: str, runtime: LoraRuntime, name: str, path: str
    ) -> EngineFailure | None:
        """Load an adapter. path: its folder in the container. None also if the engine had it already."""
        body = {"lora_name": name, "lora_path": path}
        url = f"http://{address}/v1/load_lora_adapter"
        answer = _content_of(await self._request("POST", url, body, LOAD_TIMEOUT_S))
        if not isinstance(answer, EngineFailure):
            return None
        if answer.kind == "Refused":  # perhaps because another client has loaded it meanwhile
            listed = await self.list(namespace, address, runtime)
            if not isinstance(listed, EngineFailure) and name in listed.copies:
                return None
        if runtime != "Penstock":  # the flags of another engine are not those of the fields
            return answer
        return replace(answer, message=in_fields(answer.message)[:MAX_MESSAGE_CHARS])

    async def unload(self, address: str, name: str) -> EngineFailure | None:
        """Unload an adapter. None also if the engine does not have it."""
        url, body = f"http://{address}/v1/unload_lora_adapter", {"lora_name": name}
        answer = _content_of(await self._request("POST", url, body, UNLOAD_TIMEOUT_S), (200, 404))
        return answer if isinstance(answer, EngineFailure) else None

    async def _request(
        self, method: str, url: str, body: Mapping[str, str] | None, timeout_s: float
    ) -> Answer | EngineFailure:
        if method != "GET" and not self._may_write():
            return EngineFailure("Busy", "NotLeading", "another replica may lead by now")
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._connections().request(
                    method, url, json=body, allow_redirects=False
                ) as response,
            ):
                limit = MAX_LIST_BYTES if response.status == 200 else MAX_ERROR_BYTES
                return Answer(response.status, await read_bounded(response, limit))
        except aiohttp.ClientConnectorError as error:
            return _without_answer("Unreachable", error)
        except (aiohttp.ClientError, OSError) as error:
            return _without_answer("Unanswered", error)

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = pod_session()
        return self._session


def _without_answer(kind: Literal["Unreachable", "Unanswered"], error: Exception) -> EngineFailure:
    return EngineFailure(kind, kind, f"the engine does not answer: {type(error).__name__}")


def _content_of(
    answer: Answer | EngineFailure, accepted: tuple[int, ...] = (200,)
) -> bytes | EngineFailure:
    """The content of an answer with an accepted status, else the failure that the answer is."""
    if isinstance(answer, EngineFailure):
        return answer
    if answer.status not in accepted:
        return _refusal(answer.status, answer.content or b"")
    if answer.content is None:
        return EngineFailure("Unanswered", "Unanswered", "the engine's answer is too large")
    return answer.content


def _refusal(status: int, content: bytes) -> EngineFailure:
    """The failure that an error response describes."""
    reason, message = _error_of(content)
    # vLLM answers with a 500 and the exception's text when it cannot read an adapter.
    is_about_adapter = status < 500 or (
        status == 500 and bool(message) and not message.startswith(_DEAD_ENGINE_IN_VLLM)
    )
    if found := _CAUSE_IN_VLLM.fullmatch(message):
        message = found[1]
    message = (message or f"status {status} of the engine")[:MAX_MESSAGE_CHARS]
    if not is_about_adapter or status in (408, 429):
        return EngineFailure("Busy", reason or "Busy", message)
    return EngineFailure("Refused", reason or "Refused", message)


def _error_of(content: bytes) -> tuple[str, str]:
    """(reason, message) of an error in OpenAI's format; empty if there is none.

    The code rank_too_large becomes the reason RankTooLarge, as conditions have them.
    """
    try:
        error: Any = parse_json(content)
    except ValueError:
        return "", ""
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    if not isinstance(error, dict):
        return "", ""
    code, message = error.get("code"), error.get("message")
    reason = "".join(map(_capitalized, code[:100].split("_"))) if isinstance(code, str) else ""
    return reason, message if isinstance(message, str) else ""


def _capitalized(word: str) -> str:
    return word[:1].upper() + word[1:]
