"""Events about pods, as the kubelet posts them."""

import logging
import secrets
from typing import Any

from penstock.adapters.clock import timestamp, wall
from penstock.adapters.kube import EVENTS, Kube
from penstock.errors import KubeError

logger = logging.getLogger(__name__)


class Events:
    """Posts Events; a repeated one raises the count of the first."""

    def __init__(self, kube: Kube, node: str) -> None:
        self._kube = kube
        self._node = node
        self._known: dict[tuple[str, str, str], tuple[str, int]] = {}

    async def post(self, pod: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """kind: Normal or Warning. An Event that cannot be written is only logged."""
        metadata = pod["metadata"]
        namespace, now = metadata["namespace"], timestamp(wall())
        key = (metadata["uid"], reason, message)
        try:
            if key in self._known:
                name, count = self._known[key]
                self._known[key] = (name, count + 1)
                body: dict[str, Any] = {"count": count + 1, "lastTimestamp": now}
                await self._kube.merge(EVENTS, namespace, name, body, manager=self._node)
                return
            name = f"{metadata['name'][:200]}.{secrets.token_hex(8)}"
            self._known[key] = (name, 1)
            body = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "namespace": namespace,
                    "uid": metadata["uid"],
                },
                "type": kind,
                "reason": reason,
                "message": message[:1000],
                "source": {"component": "penstock-node", "host": self._node},
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
            await self._kube.create(EVENTS, namespace, body)
        except KubeError as error:  # the pod's namespace may be on its way out
            logger.info("event %s for %s not posted: %s", reason, metadata["name"], error)

    def forget(self, uid: str) -> None:
        self._known = {key: value for key, value in self._known.items() if key[0] != uid}
