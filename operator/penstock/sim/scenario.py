"""A scenario: services with their load, the metrics that are seen of them, and what goes wrong."""

from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from penstock.core.admission import AdmissionSpec, Policy
from penstock.core.rule import Bounds, Objectives
from penstock.sim.faults import Fault
from penstock.sim.metrics import MetricsSpec
from penstock.sim.profile import Profile, Record, profile
from penstock.sim.release import Release
from penstock.sim.traces.source import Trace
from penstock.sim.workload.generate import Closed, Diurnal, Rate, Stages

SHIPPED = files("penstock.sim").joinpath("scenarios")


class Service(Record):
    """startup_s: median from creation to Ready; None: the profile's. initial_replicas: that are ready
    when it begins; None: min_replicas. release: of another revision meanwhile."""

    name: str = "service"
    profile: str
    workload: Rate | Stages | Diurnal | Closed | Trace = Field(discriminator="kind")
    ttft_s: float = Field(gt=0)
    tpot_s: float = Field(gt=0)
    attainment: float = Field(default=0.99, gt=0, lt=1)
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=8, ge=1)
    initial_replicas: int | None = Field(default=None, ge=0)
    startup_s: float | None = Field(default=None, ge=0)
    admission: Policy = "deadline"
    max_queued: int = Field(default=1024, ge=1)
    max_wait_s: float = Field(default=60.0, gt=0)
    priority: int = 0
    release: Release | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> "Service":
        try:
            profile(self.profile)
        except (OSError, yaml.YAMLError) as error:
            raise ValueError(f"profile {self.profile}: {error}") from error
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas must not be above max_replicas")
        return self

    @property
    def engine(self) -> Profile:
        engine = profile(self.profile)
        if self.startup_s is None:
            return engine
        start_up = engine.start_up.with_median(self.startup_s)
        return engine.model_copy(update={"start_up": start_up})

    @property
    def objectives(self) -> Objectives:
        return Objectives(self.ttft_s, self.tpot_s, self.attainment)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.min_replicas, self.max_replicas)

    @property
    def admission_spec(self) -> AdmissionSpec:
        return AdmissionSpec(
            self.admission, self.ttft_s, self.max_queued, self.max_wait_s, self.tpot_s
        )


class Scenario(Record):
    """quotas: GPUs by kind that all services share: each takes what is free when it wants more, or by
    priority. After duration_s nothing arrives any more, and
    what is under way may end within tail_s; replicas count until duration_s."""

    name: str
    description: str = ""
    duration_s: float = Field(gt=0)
    tail_s: float = Field(default=600.0, ge=0)
    services: tuple[Service, ...] = Field(min_length=1)
    metrics: MetricsSpec = MetricsSpec()
    faults: tuple[Fault, ...] = ()
    quotas: dict[str, int] = Field(default_factory=dict)
    sharing: Literal["FirstCome", "Priority"] = "FirstCome"

    def with_each(self, **changes: Any) -> "Scenario":
        """The same with other settings of every service; None leaves one as it is."""
        wanted = {name: value for name, value in changes.items() if value is not None}
        services = [Service.model_validate({**s.model_dump(), **wanted}) for s in self.services]
        return self.model_copy(update={"services": tuple(services)})


def shipped() -> dict[str, str]:
    """Name -> description of the scenarios that come with Penstock."""
    paths = sorted(p.name for p in SHIPPED.iterdir() if p.name.endswith(".yaml"))
    return {name[:-5]: load(name[:-5]).description for name in paths}


def load(wanted: str) -> Scenario:
    """A shipped scenario by its name, or a YAML or JSON file by its path.

    Raises OSError, yaml.YAMLError, or pydantic's ValidationError.
    """
    resource = SHIPPED.joinpath(f"{wanted}.yaml")
    if "/" not in wanted and resource.is_file():
        text, folder = resource.read_text(), Path()
    else:
        text, folder = Path(wanted).read_text(), Path(wanted).parent
    content = yaml.safe_load(text)  # JSON is YAML
    if isinstance(content, dict):
        content.setdefault("name", Path(wanted).stem)
        for service in content.get("services") or []:
            workload = service.get("workload") or {}
            if "path" in workload:
                workload["path"] = str(folder / workload["path"])
    return Scenario.model_validate(content)
