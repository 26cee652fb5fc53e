"""Lists the objects that say how much memory accelerators have."""

import logging

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import NODES, RESOURCE_SLICES
from penstock.core.observed.accelerator_memory import MEMORY_LABEL, Source
from penstock.errors import Forbidden, NotFound

logger = logging.getLogger(__name__)


async def list_devices(kube: Kube, source: Source) -> tuple[Object, ...]:
    """List the labelled nodes or the ResourceSlices; nothing if that is forbidden or the kind unknown."""
    try:
        if source == "nodes":
            found, _ = await kube.list(NODES, labelSelector=MEMORY_LABEL)
        else:
            found, _ = await kube.list(RESOURCE_SLICES)
    except (Forbidden, NotFound) as error:
        logger.warning("the memory of accelerators is unknown: %s", error)
        return ()
    return tuple(found)
