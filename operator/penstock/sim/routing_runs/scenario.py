"""Scenarios of routing: a load, a fixed number of engines, and events during the run."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from penstock.core.admission.admission_spec import Policy
from penstock.sim.profile import Profile, Record, profile
from penstock.sim.scenario import started_in
from penstock.sim.traces.source import Trace
from penstock.sim.workload.chats import Chats
from penstock.sim.workload.generate import Rate


class Restart(Record):
    """The engine with the most requests crashes: they and its cache are lost. It starts again."""

    kind: Literal["restart"] = "restart"
    at_s: float = Field(gt=0)


class Scale(Record):
    """The number of engines changes. replicas: from then on."""

    kind: Literal["scale"] = "scale"
    at_s: float = Field(gt=0)
    replicas: int = Field(ge=1)


class Canary(Record):
    """A new revision gets a part of the traffic.

    weight: its percentage of the requests. replicas: of the new revision; the old one has the rest.
    """

    kind: Literal["canary"] = "canary"
    at_s: float = Field(gt=0)
    weight: int = Field(ge=1, le=99)
    replicas: int = Field(ge=1)


Event = Annotated[Restart | Scale | Canary, Field(discriminator="kind")]


class RoutingScenario(Record):
    """A simulation of routing rules.

    duration_s: time with arrivals; requests of the first warm_up_s do not count. startup_s: of engines that
    an event adds or restarts. admission: `none` sends each request at once, as the other routers do.
    keeps_side: whether all requests of a conversation go to one revision.
    """

    name: str
    duration_s: float = Field(gt=0)
    warm_up_s: float = Field(default=60.0, ge=0)
    profile: str
    replicas: int = Field(ge=1)
    workload: Rate | Trace | Chats = Field(discriminator="kind")
    events: tuple[Event, ...] = ()
    startup_s: float = Field(default=30.0, ge=0)
    admission: Policy = "none"
    ttft_s: float = Field(default=2.0, gt=0)
    keeps_side: bool = True

    @model_validator(mode="after")
    def _is_possible(self) -> "RoutingScenario":
        if self.warm_up_s >= self.duration_s:
            raise ValueError("warm_up_s must be below duration_s")
        if any(event.at_s >= self.duration_s for event in self.events):
            raise ValueError("events must be before duration_s")
        profile(self.profile)
        return self

    @property
    def engine(self) -> Profile:
        return started_in(profile(self.profile), self.startup_s)
