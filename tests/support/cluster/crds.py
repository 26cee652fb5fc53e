"""Installs the CRDs alone, for clusters without Penstock in them."""

import asyncio

from penstock.api.generation.crdgen import crds
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import KINDS
from penstock.errors import NotFound, Transient
from penstock.local.install import apply


async def install_crds(kube: Kube) -> None:
    """Apply only the CRDs, and wait until their kinds are served reliably.

    Five list calls in a row must succeed: the API server serves a new kind with a delay, and reopens
    its storage when the last condition of the CRD is written.
    """
    kinds = crds()
    for crd in kinds:
        await apply(kube, crd)
    successes = 0
    while successes < 5:
        try:
            for crd in kinds:
                await kube.list(KINDS[crd["spec"]["names"]["kind"]])
            successes += 1
        except (NotFound, Transient):
            successes = 0
        await asyncio.sleep(0.2)
