"""Scenarios in which rules are compared, each with a tuning part and a report part.

A trace is split in time, a shipped scenario by its seeds. ServeGen's two weeks are sampled: each seed gets a
slice of its own, spread over the week so that every hour of the day occurs. Slices are 10 to 15 minutes
(`servegen`), two hours (`fortnight`), or twelve hours at three times the rate (`halfdays`).
"""

from dataclasses import dataclass
from functools import cache, partial
from math import ceil
from pathlib import Path
from random import Random
from typing import Literal

from penstock.core.admission.admission_spec import Policy
from penstock.core.scaling.learned.capacity import EngineLimits, Mix, capacity
from penstock.sim import policies, scenario
from penstock.sim.baselines.registry import iteration_model
from penstock.sim.scenario import Scenario, Service
from penstock.sim.traces.read import requests_of
from penstock.sim.traces.source import Format, Trace

Part = Literal["tuning", "report"]
DAY_S = 86_400.0
STARTUPS_S = (30.0, 110.0, 300.0)
# First seed of the tuning part of a shipped scenario, whose parts differ by their seeds alone.
TUNING_SEEDS = 1000
# Initial replicas: this multiple of the need of the first FIRST_S seconds.
FIRST_S, FIRST_SHARE = 300.0, 1.25


@dataclass(frozen=True, slots=True)
class Slice:
    """Part of a trace."""

    from_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """A scaled trace with its engine and objectives. Each seed takes the next slice of a part."""

    file: str
    format: Format
    rate_scale: float
    profile: str
    ttft_s: float
    tuning: tuple[Slice, ...]
    report: tuple[Slice, ...]
    tpot_s: float = 0.1
    max_replicas: int = 16

    def scenario(
        self, name: str, folder: Path, startup_s: float, part: Part, seed: int
    ) -> Scenario:
        slices = self.tuning if part == "tuning" else self.report
        chosen = slices[seed % len(slices)]
        workload = Trace(
            path=folder / self.file,
            format=self.format,
            rate_scale=self.rate_scale,
            from_s=chosen.from_s,
        )
        service = Service(
            profile=self.profile,
            workload=workload,
            ttft_s=self.ttft_s,
            tpot_s=self.tpot_s,
            startup_s=startup_s,
            max_replicas=self.max_replicas,
        )
        first = ceil(FIRST_SHARE * replicas_needed(service, seed))
        service = service.model_copy(update={"initial_replicas": first})
        return Scenario(name=name, duration_s=chosen.duration_s, services=(service,))


_servegen = partial(
    Recorded,
    file="servegen-m-small.tar.gz",
    format="servegen",
    profile="qwen2.5-0.5b-cpu",
    tpot_s=0.4,
)

TRACES = {
    "azure": Recorded(
        "azure-2023-conv.csv",
        "azure",
        3.0,
        "llama-3.1-8b-a100",
        2.0,
        (Slice(875, 875), Slice(0, 875)),
        (Slice(1750, 1750),),
    ),
    "mooncake": Recorded(
        "mooncake-conversation.jsonl",
        "mooncake",
        1.5,
        "llama-3.1-8b-h100",
        6.0,
        (Slice(884, 884), Slice(0, 884)),
        (Slice(1768, 1768),),
        tpot_s=0.2,
    ),
    "servegen": _servegen(
        rate_scale=0.06,
        ttft_s=2.0,
        tuning=tuple(Slice(k * 56 * 3600, 600) for k in range(3)),
        report=tuple(Slice(7 * DAY_S + k * 16.7 * 3600, 900) for k in range(10)),
    ),
    # At a TTFT of 2 s, one prompt in 440 would miss it on an idle engine.
    "fortnight": _servegen(
        rate_scale=0.06,
        ttft_s=6.0,
        tuning=tuple(Slice(k * 56 * 3600 + 9 * 3600, 7200) for k in range(3)),
        report=tuple(Slice(7 * DAY_S + k * 16.7 * 3600, 7200) for k in range(10)),
    ),
    "halfdays": _servegen(
        rate_scale=0.18,
        ttft_s=6.0,
        tuning=tuple(Slice(k * 52 * 3600 + 8 * 3600, 43200) for k in range(3)),
        report=tuple(Slice(7 * DAY_S + k * 16.7 * 3600, 43200) for k in range(10)),
        max_replicas=40,
    ),
}


@dataclass(frozen=True, slots=True)
class NamedScenario:
    """Scenario by name. trace: key of TRACES, or "" for a shipped scenario."""

    name: str
    trace: str
    startup_s: float
    folder: Path

    def run_of(self, part: Part, admission: Policy, seed: int) -> tuple[Scenario, int]:
        """Scenario of a seed, and the seed to run it with."""
        if not self.trace:
            shift = TUNING_SEEDS if part == "tuning" else 0
            return scenario.load(self.name).with_each(admission=admission), seed + shift
        made = _of_trace(self.name, self.trace, self.folder, self.startup_s, part, seed)
        return made.with_each(admission=admission), seed


_of_trace = cache(
    lambda name, trace, folder, startup_s, part, seed: TRACES[trace].scenario(
        name, folder, startup_s, part, seed
    )
)


def find_scenario(name: str, folder: Path) -> NamedScenario:
    """Find a scenario: TRACE-SECONDS such as azure-110, or a shipped one. Raises ValueError."""
    trace, _, startup = name.rpartition("-")
    if trace in TRACES and startup.isdecimal():
        return NamedScenario(name, trace, float(startup), folder)
    if name in scenario.shipped():
        return NamedScenario(name, "", 0.0, folder)
    raise ValueError(f"{name!r} is neither TRACE-SECONDS, of {', '.join(TRACES)}, nor a scenario")


def replicas_needed(service: Service, seed: int) -> float:
    """Replicas for the mean load of the first FIRST_S seconds, by the capacity of one replica."""
    assert isinstance(service.workload, Trace)
    requests, _ = requests_of(service.workload, FIRST_S, Random(seed))
    count = max(1, len(requests))
    prompt = sum(r.prompt_tokens for r in requests) / count
    output = sum(r.output_tokens for r in requests) / count
    engine = policies.engine_profile(service.engine)
    limits = EngineLimits(engine.kv_capacity_tokens, engine.max_sequences)
    found = capacity(
        iteration_model(engine), Mix(prompt, prompt, output), limits, service.objectives
    )
    return count / FIRST_S / found.rate
