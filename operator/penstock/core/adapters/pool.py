"""Choice of the engines that serve an adapter: those of its service, or a dedicated pool.

The pool that serves goes on until the other one can, and keeps its copies until all gateways know that, or
one has not answered for GATEWAY_TIMEOUT_S:

    wanted Dedicated: create the pool -> its engines load the adapter -> requests go there -> unload elsewhere
    wanted Shared: an engine of the service loads it -> requests go there -> delete the pool
"""

from dataclasses import dataclass
from typing import Literal

from penstock.core.spec.service import Object

Pool = Literal["Shared", "Dedicated"]


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """Bounds on the engines of a dedicated pool."""

    min_replicas: int = 1
    max_replicas: int = 1


DEFAULT_BOUNDS = PoolBounds()


def bounds_of(dedicated: Object) -> PoolBounds:
    """The bounds that spec.dedicated sets. Default: one engine at least, and no more than that minimum."""
    least = dedicated.get("minReplicas") or DEFAULT_BOUNDS.min_replicas
    return PoolBounds(least, dedicated.get("maxReplicas") or least)


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The pool in an adapter's status.

    serving: whose engines get the requests. service: name of the InferenceService that is the dedicated pool;
    empty while there is to be none. generation: incremented when `serving` changes; 0: the adapter never had
    a dedicated pool. change_time: of `serving`, RFC 3339; empty: unknown.
    """

    serving: Pool = "Shared"
    service: str = ""
    generation: int = 0
    change_time: str = ""

    @classmethod
    def of(cls, status: Object) -> "PoolStatus":
        """Read the status of an adapter."""
        service = status.get("dedicatedService") or ""
        is_dedicated = status.get("pool") == "Dedicated" and service
        return cls(
            "Dedicated" if is_dedicated else "Shared",
            service,
            status.get("poolGeneration") or 0,
            status.get("poolChangeTime") or "",
        )

    def serving_service(self, parent: str) -> str:
        """Name of the InferenceService that gets the requests. parent: the one of spec.serviceRef."""
        return self.service if self.serving == "Dedicated" else parent


@dataclass(frozen=True, slots=True)
class PoolInputs:
    """State of an adapter's spec, services and copies before a step."""

    wanted: Pool  # pool that the spec asks for
    parent: str  # name of the adapter's service
    service: str  # name of the dedicated pool's InferenceService
    has_parent: bool = True  # whether the parent exists
    has_service: bool = False  # the dedicated InferenceService exists and belongs to the adapter
    # Why the dedicated InferenceService cannot be created: another object has its name
    conflict: str = ""
    # Why the parent's spec cannot be copied to a new pool yet; empty if it can
    parent_not_ready: str = ""
    refusal: str = ""  # why the API server refused the last write
    is_accepted: bool = True  # whether the service takes the adapter
    needed: int = 1  # engines that a dedicated pool needs to serve
    # num_dedicated, num_shared: ready engines with the adapter in memory
    num_dedicated: int = 0
    num_shared: int = 0
    stalled: str = ""  # why the dedicated pool makes no progress; empty if it may
    obstacle: str = ""  # what its engines wait for; empty if nothing is known
    is_rolling: bool = False  # whether a version is being rolled out
    # Whether all gateways apply the stored generation, or are not waited for any more
    has_traffic_moved: bool = True
    now: str = ""  # RFC 3339


@dataclass(frozen=True, slots=True)
class PoolStep:
    """The pool after a step, and what the dedicated one is needed for.

    state: for the status. wanted: pool of the spec. keeps_service: whether the dedicated pool is to exist.
    leaving: the pool that serves no more, whose copies stay while gateways may send requests there; None:
    there is none. reason, message: of the condition PoolReady.
    """

    state: PoolStatus
    wanted: Pool
    keeps_service: bool
    leaving: Pool | None
    reason: str
    message: str

    @property
    def is_settled(self) -> bool:
        """Whether the wanted pool serves."""
        return self.state.serving == self.wanted

    def has_copies_in(self, pool: Pool) -> bool:
        """Whether engines of the pool are to have copies, or may keep those that they have."""
        return pool in (self.wanted, self.state.serving, self.leaving)


def step_pool(state: PoolStatus, inputs: PoolInputs) -> PoolStep:
    """Choose the pool that serves, and what the other one is needed for. state: as stored."""
    serving = _serving(state.serving, inputs)
    is_changed = serving != state.serving
    generation = max(state.generation, 1) + is_changed
    is_leaving = is_changed or not inputs.has_traffic_moved
    keeps_service = inputs.has_parent and (
        "Dedicated" in (inputs.wanted, serving) or (is_leaving and inputs.has_service)
    )
    other: Pool = "Shared" if serving == "Dedicated" else "Dedicated"
    reason, message = _reason(serving, inputs)
    # A time in the future, from another clock, would keep the other pool until then.
    is_time_known = "" < state.change_time <= inputs.now and not is_changed
    after = PoolStatus(
        serving,
        inputs.service if keeps_service else "",
        generation,
        state.change_time if is_time_known else inputs.now,
    )
    return PoolStep(
        after, inputs.wanted, keeps_service, other if is_leaving else None, reason, message
    )


def _serving(serving: Pool, inputs: PoolInputs) -> Pool:
    if serving == "Dedicated" and not (inputs.has_service and inputs.has_parent):
        return "Shared"
    if inputs.wanted == "Shared" and not inputs.is_accepted:
        return "Shared"  # no engine of the service is going to load it
    if inputs.is_rolling:
        return serving
    if inputs.wanted == "Dedicated" and inputs.has_service:
        return "Dedicated" if inputs.num_dedicated >= max(1, inputs.needed) else serving
    if inputs.wanted == "Shared" and inputs.num_shared:
        return "Shared"
    return serving


def _reason(serving: Pool, inputs: PoolInputs) -> tuple[str, str]:
    name = inputs.service if serving == "Dedicated" else inputs.parent
    if serving == inputs.wanted:
        serves = f"the engines of {name} serve the adapter"
        if serving == "Dedicated" and inputs.refusal:
            return "ServiceRefused", f"{serves}; a change of {name} was refused: {inputs.refusal}"
        return "Serving", serves
    until_then = f"the engines of {name} serve the adapter until then"
    if inputs.wanted == "Dedicated" and inputs.conflict:
        return "ServiceNameInUse", f"{inputs.conflict}; the engines of {name} serve the adapter"
    if inputs.wanted == "Dedicated" and inputs.parent_not_ready and not inputs.has_service:
        return "ServiceRollout", f"{inputs.parent_not_ready}; {until_then}"
    if inputs.wanted == "Dedicated" and inputs.refusal:
        return "ServiceRefused", f"{inputs.refusal}; {until_then}"
    if inputs.is_rolling:
        return "VersionRollout", f"the pool changes after the rollout of the version; {until_then}"
    if inputs.wanted == "Shared":
        return "CopyMissing", f"no engine of {inputs.parent} has the adapter yet; {until_then}"
    count = f"{inputs.num_dedicated} of {max(1, inputs.needed)} engines"
    ready = f"{count} of {inputs.service} have the adapter in memory"
    if inputs.stalled:
        return (
            "ServiceStalled",
            f"{ready}; {inputs.service} is stalled: {inputs.stalled}; {until_then}",
        )
    obstacle = f" ({inputs.obstacle})" if inputs.obstacle else ""
    return "EnginesStarting", f"{ready}{obstacle}; {until_then}"
