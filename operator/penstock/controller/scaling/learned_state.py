"""Stores the learned state of scaling by objectives in one ConfigMap per service, for the next leader."""

import logging
import math
from collections.abc import Collection
from dataclasses import dataclass

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.informer import Key
from penstock.clients.kubernetes.resources import CONFIG_MAPS
from penstock.clients.machine.logs import service_fields
from penstock.controller.process.field_managers import SCALER_MANAGER
from penstock.core.manifests.stored_record import LEARNED, is_ours, service_owner
from penstock.core.scaling.by_objectives.record import Learned, from_record, to_record
from penstock.core.spec.service import ServiceSpec
from penstock.errors import KubeError, NotFound

logger = logging.getLogger(__name__)

MIN_WRITE_INTERVAL_S = 60.0  # per service, to spare the API server


@dataclass(frozen=True, slots=True)
class _StoredState:
    """The last stored record of a service; None if there is none.

    next_write_s: earliest time of the next write; infinite if the ConfigMap belongs to another owner.
    """

    learned: Learned | None
    next_write_s: float


class LearnedStateStore:
    """Loads a service's learned state once, and saves it when it has changed enough."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._stored: dict[Key, _StoredState] = {}

    def prune(self, alive: Collection[Key]) -> None:
        """Drop the cached records of all services that are not in `alive`."""
        self._stored = {key: each for key, each in self._stored.items() if key in alive}

    async def load(self, spec: ServiceSpec, now_s: float) -> Learned | None:
        """Read the service's learned state from its ConfigMap; None if there is none.

        Raises KubeError if the ConfigMap cannot be read now.
        """
        try:
            body = await self._kube.get(CONFIG_MAPS, spec.namespace, LEARNED.name(spec.name))
        except NotFound:
            self._stored[spec.key] = _StoredState(None, now_s)
            return None
        if not is_ours(body):
            logger.warning(
                "the ConfigMap %s has another owner: the learned state is not stored",
                LEARNED.name(spec.name),
                extra=service_fields(spec.key),
            )
            self._stored[spec.key] = _StoredState(None, math.inf)
            return None
        learned = from_record(LEARNED.record_of(body, spec.uid))
        self._stored[spec.key] = _StoredState(learned, now_s + MIN_WRITE_INTERVAL_S)
        return learned

    async def save(
        self, spec: ServiceSpec, learned: Learned, now_s: float, *, is_idle: bool
    ) -> None:
        """Write the learned state if it differs enough from the stored one, at most once a minute.

        A failed write is logged and repeated a minute later.
        """
        stored = self._stored[spec.key]
        if now_s < stored.next_write_s or not learned.is_notable(stored.learned, is_idle=is_idle):
            return
        next_write_s = now_s + MIN_WRITE_INTERVAL_S
        self._stored[spec.key] = _StoredState(stored.learned, next_write_s)
        try:
            await self._kube.apply(
                LEARNED.config_map(service_owner(spec), to_record(learned)), manager=SCALER_MANAGER
            )
        except KubeError as error:
            logger.warning(
                "the learned state was not stored: %s", error, extra=service_fields(spec.key)
            )
            return
        self._stored[spec.key] = _StoredState(learned, next_write_s)
