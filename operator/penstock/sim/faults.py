"""Faults of a scenario, each with its start and end time."""

from abc import ABC, abstractmethod
from typing import Annotated, Literal, Protocol

from pydantic import Field

from penstock.sim.fleet import Fleet
from penstock.sim.metrics import Metrics, Whose
from penstock.sim.profile import Record
from penstock.sim.quota import Quota


class Afflicted(Protocol):
    """The parts of a service that faults change."""

    fleet: Fleet
    metrics: Metrics
    quota: Quota

    def quota_changed(self) -> None: ...


class Window(Record, ABC):
    """Base of all faults. service: its name, or "" for every service. to_s: None for a fault without end."""

    service: str = ""
    from_s: float = Field(ge=0)
    to_s: float | None = Field(default=None, gt=0)

    @abstractmethod
    def begin(self, service: Afflicted) -> None: ...

    def end(self, service: Afflicted) -> None:
        """Undo the fault. Faults without an undo, such as crashes, keep this."""


class Blackout(Window):
    """Scrapes fail."""

    kind: Literal["blackout"] = "blackout"
    of: Whose = "all"

    def begin(self, service: Afflicted) -> None:
        service.metrics.blackouts.append(self.of)

    def end(self, service: Afflicted) -> None:
        service.metrics.blackouts.remove(self.of)


class Frozen(Window):
    """Scrapes repeat old values; only their timestamp shows it."""

    kind: Literal["frozen"] = "frozen"
    of: Whose = "all"

    def begin(self, service: Afflicted) -> None:
        service.metrics.frozen.append(self.of)

    def end(self, service: Afflicted) -> None:
        service.metrics.frozen.remove(self.of)


class SlowNode(Window):
    """The oldest ready pods compute `factor` times slower."""

    kind: Literal["slow-node"] = "slow-node"
    pods: int = Field(default=1, ge=1)
    factor: float = Field(default=2.0, gt=0)

    def begin(self, service: Afflicted) -> None:
        for pod in service.fleet.of_phase("Ready")[: self.pods]:
            pod.engine.factor = self.factor

    def end(self, service: Afflicted) -> None:
        for pod in service.fleet.pods.values():
            pod.engine.factor = 1.0


class SlowStart(Window):
    """Pods created meanwhile take `factor` times as long to start."""

    kind: Literal["slow-start"] = "slow-start"
    factor: float = Field(default=3.0, gt=0)

    def begin(self, service: Afflicted) -> None:
        service.fleet.start_factor = self.factor

    def end(self, service: Afflicted) -> None:
        service.fleet.start_factor = 1.0


class Crash(Window):
    """The oldest pods of a phase crash at from_s."""

    kind: Literal["crash"] = "crash"
    phase: Literal["Starting", "Ready"] = "Ready"
    pods: int = Field(default=1, ge=1)

    def begin(self, service: Afflicted) -> None:
        for pod in service.fleet.of_phase(self.phase)[: self.pods]:
            service.fleet.crash(pod)


class FailingStarts(Window):
    """A share of pod starts fails half-way and restarts."""

    kind: Literal["failing-starts"] = "failing-starts"
    share: float = Field(ge=0, le=1)

    def begin(self, service: Afflicted) -> None:
        service.fleet.crash_share = self.share

    def end(self, service: Afflicted) -> None:
        service.fleet.crash_share = 0.0


class QuotaCap(Window):
    """A limit on the GPUs of one kind. Running pods keep theirs."""

    kind: Literal["quota"] = "quota"
    gpu: str
    gpus: int = Field(ge=0)

    def begin(self, service: Afflicted) -> None:
        service.quota.limits[self.gpu] = self.gpus
        service.quota_changed()

    def end(self, service: Afflicted) -> None:
        service.quota.limits.pop(self.gpu, None)
        service.quota_changed()


Fault = Annotated[
    Blackout | Frozen | SlowNode | SlowStart | Crash | FailingStarts | QuotaCap,
    Field(discriminator="kind"),
]
