"""Kubernetes Events: created once, and counted when they repeat."""

import logging
import secrets
from typing import Any

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import EVENTS
from penstock.clients.machine.clock import unix_time
from penstock.core.formats.timestamps import timestamp
from penstock.errors import KubeError

logger = logging.getLogger(__name__)

# Bound on the Events that are remembered for counting. Beyond it the oldest is written anew if it repeats.
MAX_REMEMBERED = 2000


class EventRecorder:
    """Posts Events about objects; a repeated one raises the count of the first."""

    def __init__(self, kube: Kube, component: str, host: str = "") -> None:
        self._kube = kube
        self._source = {"component": component} | ({"host": host} if host else {})
        self._known: dict[tuple[str, str, str], tuple[str, int]] = {}

    async def post(self, about: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """Post an Event. kind: Normal or Warning. An Event that cannot be written is only logged."""
        metadata = about["metadata"]
        namespace, now, message = metadata["namespace"], timestamp(unix_time()), message[:1000]
        key = (metadata["uid"], reason, message)
        try:
            if key in self._known:
                name, count = self._known[key]
                self._known[key] = (name, count + 1)
                body: dict[str, Any] = {"count": count + 1, "lastTimestamp": now}
                manager = self._source["component"]
                await self._kube.merge(EVENTS, namespace, name, body, manager=manager)
                return
            name = f"{metadata['name'][:200]}.{secrets.token_hex(8)}"
            self._remember(key, name)
            body = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "apiVersion": about["apiVersion"],
                    "kind": about["kind"],
                    "name": metadata["name"],
                    "namespace": namespace,
                    "uid": metadata["uid"],
                },
                "type": kind,
                "reason": reason,
                "message": message,
                "source": self._source,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
            await self._kube.create(EVENTS, namespace, body)
        except KubeError as error:  # the namespace may be on its way out
            logger.info("event %s for %s not posted: %s", reason, metadata["name"], error)

    def _remember(self, key: tuple[str, str, str], name: str) -> None:
        self._known[key] = (name, 1)
        if len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
