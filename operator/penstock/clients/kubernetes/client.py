"""The Kubernetes API as JSON objects, over the async half of the `kubernetes` client.

Objects are plain dicts: they are planned as dicts, and model classes would only be unpacked again.
"""

import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client

from penstock.clients.kubernetes.api_errors import api_error, status_field
from penstock.clients.kubernetes.kubeconfig import load_configuration
from penstock.clients.kubernetes.resources import KINDS, Resource
from penstock.clients.kubernetes.rest_client import RequestObserver, TrackingRestClient
from penstock.errors import Conflict, NotFound, Transient

Object = dict[str, Any]

REQUEST_TIMEOUT_S = 15.0
# A write with less time left than this is not started.
MIN_WRITE_S = 1.0
# The server ends a watch after this; a connection that died silently is noticed a little later.
WATCH_TIMEOUT_S = 240


async def connect(kubeconfig: Path | None = None, *, user_agent: str = "penstock") -> "Kube":
    """A client for the cluster that `load_configuration` finds. Close it after use."""
    return Kube(api_client(await load_configuration(kubeconfig), user_agent))


def api_client(
    configuration: client.Configuration, user_agent: str, observe: RequestObserver | None = None
) -> client.ApiClient:
    """The library's client for an API server. observe: called after each request."""
    api = client.ApiClient(configuration)
    api.rest_client = TrackingRestClient(configuration, observe)
    api.user_agent = user_agent
    return api


class Kube:
    """Requests to one API server. Every method raises from `penstock.errors`.

    write_time_s: returns for how long this process may still write, before each write. That limits the
    write's time-out, here and at the API server. With too little left it raises Transient. None: no
    limit.
    """

    def __init__(
        self, api: client.ApiClient, *, write_time_s: Callable[[], float] | None = None
    ) -> None:
        self._api = api
        self._write_time_s = write_time_s

    @property
    def may_write(self) -> bool:
        """Whether there is enough time left for a write."""
        return self._write_time_s is None or self._write_time_s() >= MIN_WRITE_S

    async def __aenter__(self) -> "Kube":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._api.close()

    @property
    def configuration(self) -> client.Configuration:
        """The address and credentials of the API server."""
        configuration: client.Configuration = self._api.configuration
        return configuration

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        return await self._json("GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        page_size: int | None = None,
        reduce: Callable[[Object], Object] = lambda item: item,
        **query: str,
    ) -> tuple[list[Object], str]:
        """Return the objects, each as `get` returns it, and the resource version to watch from.

        page_size: objects of each response; None: all come at once. reduce: returns what is kept of
        an object.
        """
        if page_size is not None:
            query["limit"] = str(page_size)
        items: list[Object] = []
        while True:
            answer = await self._json("GET", resource.path(namespace), query=query)
            # Items of a list of a built-in kind have no apiVersion and no kind.
            kind = answer["kind"].removesuffix("List")
            named = {"apiVersion": answer["apiVersion"], "kind": kind}
            items += (reduce(named | item) for item in answer["items"])
            rest = answer["metadata"].get("continue")
            if not rest:
                return items, answer["metadata"]["resourceVersion"]
            query["continue"] = rest

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Object,
        *,
        name: str = "",
        sub: str = "",
        **query: str,
    ) -> Object:
        path = resource.path(namespace, name or None, sub)
        return await self._json("POST", path, body=body, query=query)

    async def apply(self, body: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Server-side apply; the manager takes the fields it names from their present managers."""
        metadata = body["metadata"]
        path = KINDS[body["kind"]].path(metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": manager, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        return await self._json(
            "PATCH", path, body=body, query=query, content_type="application/apply-patch+yaml"
        )

    async def merge(
        self,
        resource: Resource, namespace: str | None, name: str, body: Object,
        *, manager: str, sub: str = "",
    ) -> Object:  # fmt: skip
        """Send a JSON merge patch of the object or of one of its subresources."""
        return await self._json(
            "PATCH",
            resource.path(namespace, name, sub),
            body=body,
            query={"fieldManager": manager},
            content_type="application/merge-patch+json",
        )

    async def patch(
        self,
        resource: Resource, namespace: str | None, name: str, steps: Sequence[Object],
        *, manager: str,
    ) -> Object:  # fmt: skip
        """Send a JSON patch. Either all of its steps are applied or none."""
        return await self._json(
            "PATCH",
            resource.path(namespace, name),
            body=steps,
            query={"fieldManager": manager},
            content_type="application/json-patch+json",
        )

    async def scale(
        self, resource: Resource, namespace: str, name: str, replicas: int, *, manager: str
    ) -> None:
        """Set the replicas through the scale subresource."""
        body = {"spec": {"replicas": replicas}}
        await self.merge(resource, namespace, name, body, manager=manager, sub="scale")

    async def delete(
        self,
        resource: Resource, namespace: str | None, name: str,
        *, uid: str | None = None, grace_s: int | None = None, propagation: str = "Background",
    ) -> None:  # fmt: skip
        """Delete the object, or nothing when it is gone or is another one than `uid`."""
        body: Object = {"propagationPolicy": propagation}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        with contextlib.suppress(NotFound, Conflict):
            await self._json("DELETE", resource.path(namespace, name), body=body)

    async def watch(
        self, resource: Resource, namespace: str | None, version: str, **query: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield (type, object) of each event after `version`, until the server ends the watch.

        Bookmarks are included. Raises NotFound when `version` is too old to watch from.
        """
        query |= {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        }
        path, timeout_s = resource.path(namespace), WATCH_TIMEOUT_S + 30.0
        async with aclosing(self.stream(path, query=query, timeout_s=timeout_s)) as events:
            async for line in events:
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise Transient("the watch broke: an event is no JSON") from error
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise api_error(int(status.get("code", 500)), status.get("message", ""), None)
                yield event["type"], event["object"]

    async def stream(
        self, path: str, *, query: Mapping[str, str] = {}, timeout_s: float
    ) -> AsyncGenerator[bytes]:
        """Yield the lines of a response as they arrive, until it ends or `timeout_s` is over."""
        response = await self._send("GET", path, query=query, timeout_s=timeout_s)
        async with response:
            try:
                async for line in lines(response.content):
                    yield line
            except (aiohttp.ClientError, TimeoutError) as error:
                raise Transient(f"the stream broke: {type(error).__name__}") from error

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = {},
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        response = await self._send(method, path, query=query, body=body, content_type=content_type)
        try:
            answer: Object = await response.json()
            return answer
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Transient(f"the answer broke: {type(error).__name__}") from error
        finally:
            response.release()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = {},
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> aiohttp.ClientResponse:
        if method != "GET" and self._write_time_s is not None:
            timeout_s = min(timeout_s, self._write_time_s())
            if timeout_s < MIN_WRITE_S:
                raise Transient("another replica may lead by now")
            # The API server must give up too: a write that is queued there must not be applied later.
            query = {**query, "timeout": f"{timeout_s:.3f}s"}
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        try:
            method, url, headers, _, _ = await self._api.param_serialize(
                method, path, header_params=headers, query_params=list(query.items()),
                auth_settings=["BearerToken"],
            )  # fmt: skip
            answer = await self._api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=timeout_s
            )
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            host = self._api.configuration.host
            raise Transient(
                f"the API server {host} cannot be reached: {type(error).__name__}"
            ) from error
        response: aiohttp.ClientResponse = answer.response
        if response.status >= 400:
            async with response:
                text = await response.text()
            raise api_error(
                response.status,
                status_field(text, "message") or text[:500],
                response.headers.get("Retry-After"),
                status_field(text, "reason"),
            )
        return response


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines of any length, as objects may be larger than a stream's line limit."""
    parts: list[bytes] = []  # of the line whose end has not come
    async for chunk in content.iter_any():
        rest, *others = chunk.split(b"\n")
        parts.append(rest)
        for rest in others:
            if line := b"".join(parts):
                yield line
            parts = [rest]
