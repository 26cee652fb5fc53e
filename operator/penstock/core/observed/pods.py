"""Pods of a service, reduced to the fields that the plan and the scaler need."""

from dataclasses import dataclass

from penstock.core.formats.conditions import conditions_by_type
from penstock.core.observed.fetches import PodFetches, fetches_of
from penstock.core.observed.refusal_message import end_message
from penstock.core.routing.pick import Side
from penstock.core.spec.service import (
    COHORT_LABEL,
    ENGINE_CONTAINER,
    EVALUATION_CONTAINER,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    TEMPLATE_HASH,
    VARIANT_LABEL,
    Object,
)

# Termination reasons of containers whose end was not observed: from the kubelet, and from containerd
# after a restart of the node. Both come with an exit code, which means nothing.
UNKNOWN_ENDS = ("ContainerStatusUnknown", "Unknown")

# Reasons of a container that waits for its volumes or its image.
CREATING = (None, "ContainerCreating", "PodInitializing")

# Reason of a container that the kernel killed for lack of memory.
OOM_KILLED = "OOMKilled"

# The kubelet alternates between both while it tries again. One stands for both, so that conditions do not.
IMAGE_REASONS = {"ImagePullBackOff": "ErrImagePull"}


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod of an engine, a preflight or an evaluation."""

    name: str
    uid: str
    revision: str
    role: str
    address: str
    is_ready: bool
    is_ending: bool
    phase: str
    # (reason, message) if the pod cannot become ready without a change
    trouble: tuple[str, str] | None
    termination_message: str
    # created_at, ready_at, unready_at: RFC 3339; ready_at is None while the pod is not ready, unready_at
    # while it is
    created_at: str = ""
    ready_at: str | None = None
    unready_at: str | None = None
    cohort: str = ""
    restarts: int = 0  # of its container
    is_out_of_memory: bool = False  # whether the container was last ended by an OOM kill
    owner: str = ""  # uid of the pod's controller
    variant: str = ""
    lost: str = ""  # why the pod failed for an external reason, such as an eviction; else empty
    is_creating: bool = False  # whether a node has the pod and none of its containers yet
    template_hash: str = ""
    fetches: PodFetches | None = None  # of its models; None if it fetches none
    service: str = ""

    @property
    def side(self) -> Side:
        return Side(self.revision, self.cohort)

    @property
    def is_unschedulable(self) -> bool:
        """Whether no node has room for the pod."""
        return self.trouble is not None and self.trouble[0] == "Unschedulable"

    @property
    def is_crash_looping(self) -> bool:
        """Whether the engine ended, and has not become ready since or waits for its next start.

        Or whether a fetch of its model ended in a way that repeats itself.
        """
        if self.fetches is not None and self.fetches.is_final:
            return True
        return self.trouble is not None and self.trouble[0] in ("CrashLoopBackOff", OOM_KILLED)

    @property
    def is_over(self) -> bool:
        """Whether the pod has ended for good: evicted, not admitted, or completed."""
        return self.phase in ("Failed", "Succeeded")

    @property
    def is_active_engine(self) -> bool:
        """Whether it is an engine that has not ended and does not terminate."""
        return self.role == SERVE and not (self.is_ending or self.is_over)

    @classmethod
    def of(cls, pod: Object) -> "ObservedPod":
        metadata, status = pod["metadata"], pod.get("status", {})
        labels = metadata.get("labels", {})
        conditions = conditions_by_type(status)
        containers = {c["name"]: c for c in status.get("containerStatuses", [])}
        engine = containers.get(ENGINE_CONTAINER) or containers.get(EVALUATION_CONTAINER, {})
        ready = conditions.get("Ready", {})
        is_ready = ready.get("status") == "True"
        fetches = fetches_of(status.get("initContainerStatuses", ()))
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            revision=labels.get(REVISION_LABEL, ""),
            role=labels.get(ROLE_LABEL, ""),
            address=status.get("podIP", ""),
            is_ready=is_ready,
            is_ending="deletionTimestamp" in metadata,
            phase=status.get("phase", "Pending"),
            trouble=_trouble(conditions, engine, _memory_limit(pod))
            or (fetches.failure if fetches else None),
            termination_message=_termination_message(engine),
            created_at=metadata["creationTimestamp"],
            ready_at=ready.get("lastTransitionTime") if is_ready else None,
            unready_at=None if is_ready else ready.get("lastTransitionTime"),
            cohort=labels.get(COHORT_LABEL, ""),
            restarts=engine.get("restartCount", 0) + (fetches.restarts if fetches else 0),
            is_out_of_memory=_ended_by(engine) == OOM_KILLED,
            owner=next((o["uid"] for o in metadata.get("ownerReferences", [])), ""),
            variant=labels.get(VARIANT_LABEL, ""),
            lost=_lost(status, conditions, engine),
            is_creating=_is_creating(status, conditions, engine)
            and not (fetches and fetches.has_started),
            template_hash=metadata.get("annotations", {}).get(TEMPLATE_HASH, ""),
            fetches=fetches,
            service=labels.get(SERVICE_LABEL, ""),
        )


def container_port(pod: Object, name: str) -> int | None:
    """The number of a pod's container port by its name; None if there is none."""
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            if port.get("name") == name:
                return int(port["containerPort"])
    return None


def _is_creating(status: Object, conditions: dict[str, Object], engine: Object) -> bool:
    if status.get("phase", "Pending") != "Pending":
        return False
    is_scheduled = conditions.get("PodScheduled", {}).get("status") == "True"
    waiting = engine.get("state", {}).get("waiting", {})
    return is_scheduled and waiting.get("reason") in CREATING


def _trouble(
    conditions: dict[str, Object], engine: Object, memory_limit: str
) -> tuple[str, str] | None:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return scheduled.get("reason", "Unschedulable"), scheduled.get("message", "")
    waiting = engine.get("state", {}).get("waiting", {})
    reason = waiting.get("reason")
    is_restarting = reason in (*CREATING, "CrashLoopBackOff") and _is_unready(conditions, engine)
    if is_restarting and _ended_by(engine) == OOM_KILLED:
        return OOM_KILLED, _out_of_memory_message(memory_limit)
    if reason in CREATING:
        return None
    if reason == "CrashLoopBackOff":
        ended = end_message(_termination_message(engine))
        return "CrashLoopBackOff", ended or waiting.get("message", "")
    return IMAGE_REASONS.get(reason, reason), waiting.get("message", "")


def _is_unready(conditions: dict[str, Object], engine: Object) -> bool:
    """Whether the pod has not been ready since its container started."""
    ready, running = conditions.get("Ready", {}), engine.get("state", {}).get("running", {})
    started_at = running.get("startedAt") or ready.get("lastTransitionTime", "")
    return ready.get("status") != "True" and ready.get("lastTransitionTime", "") <= started_at


def _out_of_memory_message(memory_limit: str) -> str:
    """Message about a container that was killed. memory_limit: empty if it has none."""
    limit = f", at its limit of {memory_limit}: raise" if memory_limit else ": set"
    return (
        f"the engine's container was killed for lack of memory{limit} spec.resources.limits.memory"
    )


def _memory_limit(pod: Object) -> str:
    containers = pod.get("spec", {}).get("containers", [])
    engine: Object = next((c for c in containers if c.get("name") == ENGINE_CONTAINER), {})
    return str(engine.get("resources", {}).get("limits", {}).get("memory", ""))


def _lost(status: Object, conditions: dict[str, Object], engine: Object) -> str:
    """Why a pod failed for an external reason: evicted, not admitted, or its node is gone. Else empty.

    The kubelet puts the cause in the pod's status.reason. DeadlineExceeded comes from the pod's spec and
    does not count.
    """
    if status.get("phase") != "Failed":
        return ""
    reason = status.get("reason", "")
    if reason and reason != "DeadlineExceeded":
        # The kubelet's messages may end with a space.
        message = status.get("message", "").strip()
        return f"{reason}: {message}" if message else str(reason)
    disrupted = conditions.get("DisruptionTarget", {})
    if disrupted.get("status") == "True":
        return f"{disrupted.get('reason', '')}: {disrupted.get('message', '')}"
    ended = engine.get("state", {}).get("terminated", {})
    if ended.get("reason") in UNKNOWN_ENDS:
        return f"{ended['reason']}: {ended.get('message') or 'the end of its container was not observed'}"
    return "" if "exitCode" in ended or reason else "its container never ended"


def _ended_by(engine: Object) -> str:
    """Why the engine's container ended, now or last."""
    for state in ("state", "lastState"):
        if reason := engine.get(state, {}).get("terminated", {}).get("reason"):
            return str(reason)
    return ""


def _termination_message(engine: Object) -> str:
    for state in ("state", "lastState"):
        if words := engine.get(state, {}).get("terminated", {}).get("message"):
            return str(words)
    return ""
