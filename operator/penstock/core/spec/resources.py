"""Resources of an engine pod, as in the ResourceRequirements of a container."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.core.formats.quantity import whole_quantity

Quantities = dict[str, str]

DEFAULT_LIMITS: Quantities = {"cpu": "1", "memory": "2Gi"}
# Domain of the accelerator among several extended resources. Others may be network adapters.
ACCELERATOR_DOMAIN = "nvidia.com/"


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one, which a device plugin announces in whole units."""
    return "/" in name and "kubernetes.io/" not in name


def accelerators_among(names: Iterable[str]) -> list[str]:
    """The extended resources. If there are several and some are of ACCELERATOR_DOMAIN, only these."""
    extended = [name for name in names if is_extended(name)]
    known = [name for name in extended if name.startswith(ACCELERATOR_DOMAIN)]
    return known if len(extended) > 1 and known else extended


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """Requests and limits with all defaults applied. claims: names of resourceClaims in the pod."""

    requests: Quantities = field(default_factory=lambda: dict(DEFAULT_LIMITS))
    limits: Quantities = field(default_factory=lambda: dict(DEFAULT_LIMITS))
    claims: tuple[str, ...] = ()

    @staticmethod
    def of(
        requests: Quantities, limits: Quantities, claims: tuple[str, ...] = ()
    ) -> "ResourceSpec":
        """Apply the defaults: limits of CPU and memory, and as in Kubernetes, requests like the limits."""
        missing = {
            name: quantity
            for name, quantity in DEFAULT_LIMITS.items()
            if name not in requests and name not in limits
        }
        limits = missing | limits
        return ResourceSpec(limits | requests, limits, claims)

    @property
    def memory_bytes(self) -> int:
        """Memory that the engine plans with."""
        return whole_quantity(self._bound("memory"))

    @property
    def threads(self) -> int:
        """Threads that the engine computes with: the whole CPU cores, at least one."""
        return max(1, whole_quantity(self._bound("cpu")))

    @property
    def accelerator(self) -> tuple[str, int] | None:
        """Name and number of an engine's accelerators; None without an extended resource."""
        for name in accelerators_among(self.limits):
            if count := whole_quantity(self.limits[name]):
                return name, count
        return None

    @property
    def num_accelerators(self) -> int:
        return 0 if self.accelerator is None else self.accelerator[1]

    @property
    def device(self) -> str:
        """Device that the engine computes on: cpu or cuda. A resource claim is assumed to be for a GPU."""
        return "cuda" if self.accelerator or self.claims else "cpu"

    def manifest(self) -> dict[str, Any]:
        """The `resources` of a container."""
        made: dict[str, Any] = {"requests": dict(self.requests)}
        if self.limits:
            made["limits"] = dict(self.limits)
        if self.claims:
            made["claims"] = [{"name": name} for name in self.claims]
        return made

    def _bound(self, name: str) -> str:
        return self.limits.get(name, self.requests[name])
