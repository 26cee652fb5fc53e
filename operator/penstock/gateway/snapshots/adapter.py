"""A LoraAdapter of the gateway's routing snapshot."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import NO_DEMAND, AdapterDemand
from penstock.core.adapters.versions import VersionShare, adapter_key, pool_key
from penstock.core.observed.name_claims import ESTABLISHED, ClaimKind, Precedence
from penstock.core.routing.weights import choose_by_key, choose_by_weight


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoraAdapter: a model name that the engines of a service answer with an adapter."""

    kind: ClassVar[ClaimKind] = "LoraAdapter"
    namespace: str
    name: str
    served_name: str
    created_s: int
    # "namespace/name" of the service whose engines get the requests: `parent`, the one that the adapter is
    # for, or its dedicated pool
    service: str
    version: AdapterVersion  # version that a request gets
    parent: str = ""
    # Shares of the versions in the requests, during a rollout; empty: all requests get `version`
    shares: tuple[VersionShare, ...] = ()
    generation: int = 0  # of the shares; 0 while no rollout is in progress
    pool_generation: int = 0  # of `service`; 0 if the adapter never had a dedicated pool
    precedence: Precedence = ESTABLISHED  # of its claim on the model name
    # Demand in its status; changes of it alone do not replace the snapshot
    demand: AdapterDemand = field(default=NO_DEMAND, compare=False)
    # Whether GET /v1/models has it: it is not refused, and engines can read it
    is_listed: bool = True
    # Whether engines find its files: they are in a volume, or were fetched
    is_available: bool = True
    key: str = field(init=False, repr=False, compare=False)
    full_name: str = field(init=False, repr=False, compare=False)
    # engine_name, engine_names: of the version and of all versions in engines
    engine_name: str = field(init=False, repr=False, compare=False)
    engine_names: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the names once: a snapshot may have thousands of adapters."""
        name = self.version.engine_name
        names = tuple(version.engine_name for version in self.versions) if self.shares else (name,)
        object.__setattr__(self, "parent", self.parent or self.service)
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")
        object.__setattr__(self, "full_name", f"{self.namespace}/{self.served_name}")
        object.__setattr__(self, "engine_name", name)
        object.__setattr__(self, "engine_names", names)

    @property
    def is_mixed(self) -> bool:
        """Whether requests get different versions, so that a canary can be judged."""
        return len(self.shares) > 1

    @property
    def rollout_key(self) -> str:
        """Key of the rollout in reports to the operator."""
        return "/".join(adapter_key(self.namespace, self.name))

    @property
    def pool_key(self) -> str:
        """Key of the pool's generation in reports to the operator."""
        return "/".join(pool_key(self.namespace, self.name))

    @property
    def versions(self) -> tuple[AdapterVersion, ...]:
        """The versions that requests get."""
        return tuple(share.version for share in self.shares) or (self.version,)

    @property
    def others(self) -> tuple["Adapter", ...]:
        """The adapter with each of the other versions that requests get."""
        versions = (each for each in self.versions if each != self.version)
        return tuple(replace(self, version=version) for version in versions)

    def choose(self, draw: float, key: bytes | None) -> "Adapter":
        """Return the adapter with the version of one request.

        draw: uniform in [0, 1). key: session-affinity key: requests with the same key get one version; None:
        each is assigned by `draw`.
        """
        if not self.is_mixed:
            return self
        shares = [((share.version.engine_name,), share.percent) for share in self.shares]
        (name,) = choose_by_weight(shares, draw)[0] if key is None else choose_by_key(shares, key)
        version = next(each for each in self.versions if each.engine_name == name)
        return replace(self, version=version)
