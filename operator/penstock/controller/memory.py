"""What sizing has learned of each service, kept where the next leader finds it."""

import logging
import math
from collections.abc import Collection
from dataclasses import dataclass

from penstock.clients.kube import Kube
from penstock.clients.resources import CONFIG_MAPS
from penstock.core.manifests.kept import SIZING, is_ours
from penstock.core.scaling.by_objectives.record import Learned, from_record, to_record
from penstock.core.spec.service import ServiceSpec
from penstock.errors import KubeError, NotFound

logger = logging.getLogger(__name__)

Key = tuple[str, str]

MANAGER = "penstock-scaler"
BETWEEN_WRITES_S = 60.0


@dataclass(frozen=True, slots=True)
class _Kept:
    """A stored record. may_write_s: time of the next write; infinite if another owner has the name."""

    learned: Learned | None
    may_write_s: float


class Memory:
    """Reads a service's record once, and writes it when it is worth it."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._kept: dict[Key, _Kept] = {}

    def only(self, alive: Collection[Key]) -> None:
        """Forget what is kept of other services."""
        self._kept = {key: kept for key, kept in self._kept.items() if key in alive}

    async def recall(self, spec: ServiceSpec, now_s: float) -> Learned | None:
        """None when nothing is known. Raises KubeError when it cannot be told yet."""
        try:
            body = await self._kube.get(CONFIG_MAPS, spec.namespace, SIZING.name(spec.name))
        except NotFound:
            self._kept[spec.key] = _Kept(None, now_s)
            return None
        if not is_ours(body):
            logger.warning(
                "%s/%s: the ConfigMap %s is not Penstock's: what is learned is not kept",
                *spec.key, SIZING.name(spec.name),
            )  # fmt: skip
            self._kept[spec.key] = _Kept(None, math.inf)
            return None
        learned = from_record(SIZING.record_of(body, spec.uid))
        self._kept[spec.key] = _Kept(learned, now_s + BETWEEN_WRITES_S)
        return learned

    async def keep(
        self, spec: ServiceSpec, learned: Learned, now_s: float, *, is_idle: bool
    ) -> None:
        """Write it when it differs enough, at most once a minute. What fails is tried again then."""
        kept = self._kept[spec.key]
        if now_s < kept.may_write_s or not learned.is_notable(kept.learned, is_idle=is_idle):
            return
        next_s = now_s + BETWEEN_WRITES_S
        self._kept[spec.key] = _Kept(kept.learned, next_s)
        try:
            await self._kube.apply(SIZING.config_map(spec, to_record(learned)), manager=MANAGER)
        except KubeError as error:
            logger.warning("%s/%s: what is learned is not kept: %s", *spec.key, error)
            return
        self._kept[spec.key] = _Kept(learned, next_s)
