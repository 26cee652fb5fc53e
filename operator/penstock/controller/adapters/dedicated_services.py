"""Creates, changes and deletes the InferenceServices that are dedicated pools of adapters."""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.clients.machine.clock import monotonic
from penstock.clients.machine.logs import service_fields
from penstock.controller.process.failures import Failures
from penstock.controller.process.field_managers import ADAPTERS_MANAGER
from penstock.core.formats.json_merge import difference, if_unchanged
from penstock.errors import AlreadyExists, Conflict, Forbidden, NotFound, Rejected, Transient

logger = logging.getLogger(__name__)

# Pause after the API server refused a pool, in seconds: a quota or a policy may change.
REFUSED_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refused write. body: the refused InferenceService. until_s: monotonic time of the next try."""

    body: Object
    message: str
    until_s: float


class DedicatedServices:
    """Writes the InferenceServices of dedicated pools. An error on one stops no other.

    A create never takes over an object of the same name. A merge patch then changes the fields that differ:
    server-side apply would leave fields in place that others have added.
    """

    def __init__(self, kube: Kube, failures: Failures) -> None:
        self._kube = kube
        self._failures = failures
        self._refusals: dict[Key, _Refusal] = {}
        # Resource version and wanted body after the last patch: fields that the API server adds to it are not
        # patched again in each pass.
        self._patched: dict[Key, tuple[str, Object]] = {}

    def refusal(self, key: Key) -> str:
        """Why the API server refused the last write; empty if it did not."""
        refusal = self._refusals.get(key)
        return "" if refusal is None else refusal.message

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget all other services."""
        self._refusals = {key: each for key, each in self._refusals.items() if key in keys}
        self._patched = {key: each for key, each in self._patched.items() if key in keys}

    async def write(self, wanted: Object, stored: Object | None) -> None:
        """Create the service, or patch the stored one to be as wanted."""
        key = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        refusal = self._refusals.get(key)
        if refusal and refusal.body == wanted and monotonic() < refusal.until_s:
            return
        with self._failures.isolate_errors("adapters", *key):
            try:
                await (
                    self._create(key, wanted)
                    if stored is None
                    else self._patch(key, wanted, stored)
                )
                self._refusals.pop(key, None)
            except (AlreadyExists, Conflict, NotFound):
                return  # its watch event starts another try
            except (Forbidden, Rejected) as error:
                until_s = monotonic() + REFUSED_PAUSE_S
                self._refusals[key] = _Refusal(wanted, str(error), until_s)
                if refusal is None or refusal.message != str(error):
                    logger.warning("dedicated pool refused: %s", error, extra=service_fields(key))
            except Transient as error:
                logger.warning("dedicated pool not written: %s", error, extra=service_fields(key))

    async def delete(self, key: Key, uid: str) -> None:
        """Delete the service with this uid. Its engines finish their requests."""
        with self._failures.isolate_errors("adapters", *key):
            try:
                await self._kube.delete(INFERENCE_SERVICES, *key, uid=uid)
                logger.info("dedicated pool deleted", extra=service_fields(key))
            except Transient as error:
                logger.warning("dedicated pool not deleted: %s", error, extra=service_fields(key))

    async def _create(self, key: Key, wanted: Object) -> None:
        await self._kube.create(INFERENCE_SERVICES, key[0], wanted, fieldManager=ADAPTERS_MANAGER)
        logger.info("dedicated pool created", extra=service_fields(key))

    async def _patch(self, key: Key, wanted: Object, stored: Object) -> None:
        """Patch the spec and the labels where they differ from the wanted ones."""
        patch = _patch_of(stored, wanted)
        version = stored["metadata"]["resourceVersion"]
        if not patch or self._patched.get(key) == (version, wanted):
            return
        patch = if_unchanged(stored, patch)
        after = await self._kube.merge(INFERENCE_SERVICES, *key, patch, manager=ADAPTERS_MANAGER)
        self._patched[key] = after["metadata"]["resourceVersion"], wanted
        logger.info("dedicated pool changed", extra=service_fields(key))


def _patch_of(stored: Object, wanted: Object) -> Object:
    """Merge patch of the fields that differ; empty if none does. Labels that others have added stay."""
    patch: Object = {}
    if stored["spec"] != wanted["spec"]:
        patch["spec"] = difference(stored["spec"], wanted["spec"])
    labels = stored["metadata"].get("labels") or {}
    changed = {
        name: value
        for name, value in wanted["metadata"]["labels"].items()
        if labels.get(name) != value
    }
    return patch | ({"metadata": {"labels": changed}} if changed else {})
