"""Computes a pod's status from the states of its containers. No I/O."""

from dataclasses import dataclass, field, replace

from penstock.core.spec.service import Object


@dataclass(frozen=True, slots=True)
class Terminated:
    """A terminated run of a container. Times are Kubernetes timestamps."""

    exit_code: int
    reason: str
    message: str
    started_at: str
    finished_at: str

    def as_state(self) -> Object:
        """Return it in the format of a container state."""
        state: Object = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
        }
        return {"terminated": state | ({"message": self.message} if self.message else {})}


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """The state of a container: waiting for a reason, running since a time, or terminated."""

    name: str
    image: str
    waiting_reason: str = "ContainerCreating"
    waiting_message: str = ""
    running_since: str | None = None
    ended: Terminated | None = None
    last: Terminated | None = None
    restarts: int = 0
    is_started: bool = False  # its start-up probe has passed
    is_ready: bool = False

    def waiting(self, reason: str, message: str = "") -> "ContainerRecord":
        """Return the record with the container waiting for this reason."""
        return replace(
            self,
            waiting_reason=reason,
            waiting_message=message,
            running_since=None,
            ended=None,
            last=self.ended or self.last,
            is_started=False,
            is_ready=False,
        )

    def running(self, since: str) -> "ContainerRecord":
        """Return the record with the container running; a second run counts as a restart."""
        is_restart = self.ended is not None or self.last is not None
        return replace(
            self,
            running_since=since,
            ended=None,
            last=self.ended or self.last,
            restarts=self.restarts + is_restart,
            is_started=False,
            is_ready=False,
        )

    def terminated(self, ended: Terminated) -> "ContainerRecord":
        """Return the record with the container terminated."""
        return replace(self, running_since=None, ended=ended, is_started=False, is_ready=False)

    def as_status(self) -> Object:
        if self.running_since is not None:
            state: Object = {"running": {"startedAt": self.running_since}}
        elif self.ended is not None:
            state = self.ended.as_state()
        else:
            message = {"message": self.waiting_message} if self.waiting_message else {}
            state = {"waiting": {"reason": self.waiting_reason} | message}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.is_ready,
            "started": self.is_started,
            "restartCount": self.restarts,
            "state": state,
            "lastState": self.last.as_state() if self.last else {},
        }


@dataclass(frozen=True, slots=True)
class PodRecord:
    """The containers' states and the other facts that a pod's status is computed from."""

    restart_policy: str
    pod_ip: str
    host_ip: str
    start_time: str
    init: tuple[ContainerRecord, ...] = ()
    containers: tuple[ContainerRecord, ...] = ()
    failure: tuple[str, str] | None = None  # (reason, message) of a pod ended by its deadline
    scheduled: Object = field(default_factory=dict)  # the PodScheduled condition, kept

    @property
    def phase(self) -> str:
        """The pod's phase, by Kubernetes' rules for its restart policy."""
        if self.failure:
            return "Failed"
        if any(c.ended and c.ended.exit_code and self.restart_policy == "Never" for c in self.init):
            return "Failed"
        if not self._init_done:
            return "Pending"
        ended = [c.ended for c in self.containers]
        if self.restart_policy != "Always" and all(
            e is not None and (e.exit_code == 0 or self.restart_policy == "Never") for e in ended
        ):
            return "Failed" if any(e and e.exit_code for e in ended) else "Succeeded"
        if all(c.running_since is None and not c.ended and not c.last for c in self.containers):
            return "Pending"
        return "Running"

    @property
    def _init_done(self) -> bool:
        return all(c.ended is not None and c.ended.exit_code == 0 for c in self.init)

    def as_status(self, previous: Object, now: str) -> Object:
        """Return the status. Unchanged conditions keep the transition times of `previous`."""
        phase = self.phase
        over = phase in ("Succeeded", "Failed")
        ready = all(c.is_ready for c in self.containers) and self._init_done and not over
        truths = {
            "Initialized": self._init_done,
            "ContainersReady": ready,
            "Ready": ready,
        }
        known = {c["type"]: c for c in previous.get("conditions", [])}
        conditions = [self.scheduled] if self.scheduled else []
        for name, truth in truths.items():
            condition: Object = {"type": name, "status": "True" if truth else "False"}
            if not truth:
                condition |= self._reason(name, over)
            old = known.get(name, {})
            same = old.get("status") == condition["status"]
            since = old.get("lastTransitionTime", now) if same else now
            conditions.append(condition | {"lastTransitionTime": since})
        status: Object = {
            "phase": phase,
            "conditions": conditions,
            "hostIP": self.host_ip,
            "hostIPs": [{"ip": self.host_ip}],
            "podIP": self.pod_ip,
            "podIPs": [{"ip": self.pod_ip}],
            "startTime": self.start_time,
            "containerStatuses": [c.as_status() for c in self.containers],
        }
        if self.init:
            status["initContainerStatuses"] = [
                c.as_status() | {"ready": bool(c.ended and c.ended.exit_code == 0)}
                for c in self.init
            ]
        if self.failure:
            status |= {"reason": self.failure[0], "message": self.failure[1]}
        return status

    def _reason(self, condition: str, over: bool) -> Object:
        if over:
            return {"reason": "PodCompleted"}
        if condition == "Initialized":
            return {"reason": "ContainersNotInitialized"}
        unready = [c.name for c in self.containers if not c.is_ready]
        return {
            "reason": "ContainersNotReady",
            "message": f"containers with unready status: [{' '.join(unready)}]",
        }


def should_restart(policy: str, exit_code: int) -> bool:
    """Whether a container with this exit code is restarted under the restart policy."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
