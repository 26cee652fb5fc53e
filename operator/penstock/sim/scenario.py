"""Scenario files: services with their load, the quality of their metrics, and faults."""

from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from penstock.core.admission.admission_spec import AdmissionSpec, Policy
from penstock.core.routing.hold import HOLD_S
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.variants.cheapest import Offer
from penstock.core.spec.objectives import UNBOUNDED_S, Objectives
from penstock.sim.faults import Fault
from penstock.sim.metrics import MetricsSpec
from penstock.sim.profile import Profile, Record, profile
from penstock.sim.release import Release
from penstock.sim.traces.source import Trace
from penstock.sim.workload.generate import Closed, Diurnal, Rate, Stages

SHIPPED = files("penstock.sim").joinpath("scenarios")


class Variant(Record):
    """Variant of a service's engine. price_per_hour: of a replica; None: the price of its GPUs.

    max_replicas: None: that of the service.
    """

    name: str = Field(min_length=1)
    profile: str
    price_per_hour: float | None = Field(default=None, gt=0)
    min_replicas: int = Field(default=0, ge=0)
    max_replicas: int | None = Field(default=None, ge=0)
    startup_s: float | None = Field(default=None, ge=0)

    @property
    def engine(self) -> Profile:
        """Profile of the variant, with its own price and start-up time."""
        engine = started_in(profile(self.profile), self.startup_s)
        if self.price_per_hour is None:
            return engine
        gpu_hour_price = self.price_per_hour / engine.gpus
        return engine.model_copy(update={"gpu_hour_price": gpu_hour_price})


class Service(Record):
    """A service with its load, objectives and bounds. It has either a profile or variants.

    Initial replicas run on the first variant, beside the minimum replicas of the others. startup_s: median
    time from creation to Ready; None: that of the profile. initial_replicas: ready at time 0; None:
    min_replicas. release: a new revision during the run.
    """

    name: str = "service"
    profile: str = ""
    variants: tuple[Variant, ...] = Field(default=(), max_length=6)
    workload: Rate | Stages | Diurnal | Closed | Trace = Field(discriminator="kind")
    ttft_s: float = Field(default=UNBOUNDED_S, gt=0)
    tpot_s: float = Field(default=UNBOUNDED_S, gt=0)
    attainment: float = Field(default=0.99, gt=0, lt=1)
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=8, ge=1)
    initial_replicas: int | None = Field(default=None, ge=0)
    # Time without requests after which a service with min_replicas 0 has no replica, until a request comes.
    # If it is None, the scaling rule decides about zero replicas.
    idle_after_s: float | None = Field(default=None, gt=0)
    startup_s: float | None = Field(default=None, ge=0)
    admission: Policy = "deadline"
    max_queued: int = Field(default=1024, ge=1)
    max_wait_s: float = Field(default=60.0, gt=0)
    priority: int = 0
    release: Release | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> "Service":
        if not (self.objectives.has_ttft or self.objectives.has_tpot):
            raise ValueError("a service needs ttft_s or tpot_s")
        if bool(self.profile) == bool(self.variants):
            raise ValueError("a service has either a profile or variants")
        for name in [self.profile] if self.profile else [v.profile for v in self.variants]:
            profile(name)
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas must not be above max_replicas")
        if self.idle_after_s is not None and (self.min_replicas or self.release is not None):
            raise ValueError("idle_after_s needs min_replicas 0, and no release")
        if len({v.name for v in self.variants}) < len(self.variants):
            raise ValueError("two variants have the same name")
        if sum(v.min_replicas for v in self.variants) > self.max_replicas:
            raise ValueError("the variants' min_replicas are more than max_replicas together")
        if self.variants and (self.release is not None or self.startup_s is not None):
            raise ValueError(
                "of a service with variants no release is simulated; startup_s is theirs"
            )
        return self

    @property
    def engines(self) -> dict[str, Profile]:
        """Engine profile by variant; under "" for a service without variants."""
        if self.variants:
            return {variant.name: variant.engine for variant in self.variants}
        return {"": started_in(profile(self.profile), self.startup_s)}

    @property
    def alone(self) -> tuple["Service", ...]:
        """Services with a single variant each; the service itself if it has no variants."""
        return tuple(self.model_copy(update={"variants": (each,)}) for each in self.variants) or (
            self,
        )

    @property
    def engine(self) -> Profile:
        """Profile of the only engine, or of the first variant."""
        return next(iter(self.engines.values()))

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Variants with price and bounds. Their relative capacity is unknown here and set to 1."""
        limits = {v.name: (v.min_replicas, v.max_replicas) for v in self.variants}
        offers = []
        for name, engine in self.engines.items():
            least, most = limits.get(name, (0, None))
            most = self.max_replicas if most is None else min(most, self.max_replicas)
            price = engine.gpus * engine.gpu_hour_price
            offers.append(Offer(name, 1.0, price, 0, least, most))
        return tuple(offers)

    @property
    def objectives(self) -> Objectives:
        return Objectives(self.ttft_s, self.tpot_s, self.attainment)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.min_replicas, self.max_replicas)

    @property
    def admission_spec(self) -> AdmissionSpec:
        """Admission. Requests of a service that may be at zero wait as long as gateways hold them."""
        wait_s = self.max_wait_s if self.idle_after_s is None else max(HOLD_S, self.max_wait_s)
        return AdmissionSpec(self.admission, self.objectives.max_wait_s, self.max_queued, wait_s)

    @property
    def engine_tpot_s(self) -> float | None:
        """TPOT objective sent to engines with each request; None without one, or without admission queues."""
        return self.tpot_s if self.admission != "none" and self.objectives.has_tpot else None


class Scenario(Record):
    """A simulation: services, load, faults and quotas.

    duration_s: time with arrivals, in which replicas are counted. tail_s: time for open requests to end.
    quotas: GPUs by kind, shared by all services. sharing: first come, first served, or by priority.
    """

    name: str
    description: str = ""
    duration_s: float = Field(gt=0)
    tail_s: float = Field(default=600.0, ge=0)
    services: tuple[Service, ...] = Field(min_length=1)
    metrics: MetricsSpec = MetricsSpec()
    faults: tuple[Fault, ...] = ()
    quotas: dict[str, int] = Field(default_factory=dict)
    sharing: Literal["FirstCome", "Priority"] = "FirstCome"

    @model_validator(mode="after")
    def _shares_one_kind(self) -> "Scenario":
        if self.sharing == "Priority" and any(service.variants for service in self.services):
            raise ValueError("services with variants share no quota by priority")
        return self

    def with_each(self, **changes: Any) -> "Scenario":
        """Copy with settings of every service replaced; None keeps one. A profile replaces variants."""
        wanted = {name: value for name, value in changes.items() if value is not None}
        if "profile" in wanted:
            wanted["variants"] = ()
        services = [Service.model_validate({**s.model_dump(), **wanted}) for s in self.services]
        return self.model_copy(update={"services": tuple(services)})


def started_in(engine: Profile, median_s: float | None) -> Profile:
    """Copy of an engine profile with another median start-up time; None keeps its own."""
    if median_s is None:
        return engine
    return engine.model_copy(update={"start_up": engine.start_up.with_median(median_s)})


def shipped(key: str = "services") -> dict[str, str]:
    """Map the name of each shipped scenario of `services`, or of `adapters`, to its description."""
    names = sorted(p.name[:-5] for p in SHIPPED.iterdir() if p.name.endswith(".yaml"))
    contents = {name: read(name) for name in names}
    return {name: text.get("description", "") for name, text in contents.items() if key in text}


def load(wanted: str) -> Scenario:
    """Load a scenario of services. Raises as `read`, or pydantic's ValidationError."""
    return Scenario.model_validate(read(wanted))


def read(wanted: str) -> Any:
    """Content of a shipped scenario by name, or of a YAML or JSON file by path.

    Raises OSError, yaml.YAMLError, or ValueError if there is no such scenario or file.
    """
    resource = SHIPPED.joinpath(f"{wanted}.yaml")
    if "/" not in wanted and resource.is_file():
        text, folder = resource.read_text(), Path()
    else:
        if not wanted or not Path(wanted).exists():
            what = (
                f"no scenario or file {wanted!r}" if wanted else "name a scenario, or use --trace"
            )
            raise ValueError(f"{what}; scenarios: {', '.join(shipped())}")
        text, folder = Path(wanted).read_text(), Path(wanted).parent
    content = yaml.safe_load(text)  # JSON is YAML
    if isinstance(content, dict):
        content = {"name": Path(wanted).stem, **content}
        for service in content.get("services") or []:
            workload = service.get("workload") or {}
            if "path" in workload:
                workload["path"] = str(folder / workload["path"])
    return content
