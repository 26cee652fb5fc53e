"""`penstock explain` on services of both scaling rules: the same parts, with the same words."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.core.scaling.by_kv.engine_loads import engine, observation
from tests.core.scaling.conftest import live
from tests.support.cluster.started_pod import at, ready_pod
from typer.testing import CliRunner, Result

from penstock.cli.main import build
from penstock.core.scaling import what_if
from penstock.core.scaling.by_kv.rule import KvRule
from penstock.core.scaling.by_kv.tick import KvSettings, KvTick
from penstock.core.scaling.idle import IdleDecision
from penstock.core.scaling.recording import AnyTick, RecordingWriter
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Missing
from penstock.core.scaling.zero_totals import ZeroTotals

LOST = Missing("chat-0", "ReadTimeout")


def kv_tick(*, is_blind: bool = False) -> KvTick:
    """Two replicas without objectives, one of which would be enough."""
    settings = KvSettings(KvRule(0.75, 4, 60.0), Bounds(1, 5))
    engines = [LOST, LOST] if is_blind else [engine(0.3), engine(0.3)]
    seen, state = observation(*engines), settings.rule.initial()
    decision, _ = settings.rule.decide(None, settings.bounds, seen, state)
    return KvTick(settings, state, seen, decision)


def objectives_tick(*, is_blind: bool = False) -> AnyTick:
    """A service with objectives at rest at some replicas."""
    (*_, last) = live(3, 200, mean_arrivals=60.0)
    if not is_blind:
        return last
    seen = replace(last.seen, pods=tuple(replace(pod, reading=LOST) for pod in last.seen.pods))
    tick = replace(last, seen=seen)
    return replace(tick, decision=tick.decide_again())


METADATA = {
    "name": "chat", "namespace": "default", "uid": "u", "generation": 1,
    "creationTimestamp": "2026-01-01T00:00:00Z",
}  # fmt: skip


class Cluster:
    """API server with one service, and an operator that makes one decision on it."""

    def __init__(self, tick: AnyTick, **spec: Any) -> None:
        self.tick, self.spec = tick, {"model": {"uri": "pvc://models"}, **spec}
        self.pods: list[dict[str, Any]] = []
        trail = [
            {"step": entry.step, "replicas": entry.replicas, "note": entry.note}
            for entry in tick.decision.trail
        ]
        self.scaling = {
            "desiredReplicas": tick.decision.desired, "lastScaleTime": "2026-01-01T00:00:00Z",
            "message": tick.decision.reason, "trail": trail,
        }  # fmt: skip

    async def connect(self, **_: object) -> "Cluster":
        return self

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get(self, *_: object) -> dict[str, Any]:
        return {"metadata": METADATA, "spec": self.spec, "status": {"scaling": self.scaling}}

    async def list(self, *_: object, **__: object) -> tuple[list[dict[str, Any]], str]:
        return self.pods, "1"

    async def recording(self, *_: object, **__: object) -> AsyncIterator[bytes]:
        for line in RecordingWriter("default/chat").lines(self.tick):
            yield line.encode()


@pytest.fixture
def explain(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command on a service with this last decision, on a wide terminal."""
    wide = Console(highlight=False, markup=False, width=1000)
    monkeypatch.setattr("penstock.cli.scaling.explain.console", wide)

    def explain(
        tick: AnyTick, *words: str, pods: Sequence[dict[str, Any]] = (), **spec: Any
    ) -> Result:
        cluster = Cluster(tick, **spec)
        cluster.pods += pods
        monkeypatch.setattr("penstock.cli.scaling.explain.connect", cluster.connect)
        monkeypatch.setattr("penstock.cli.scaling.explain.recording", cluster.recording)
        return CliRunner().invoke(build("explain"), ["explain", "chat", *words])

    return explain


TICKS = pytest.mark.parametrize("tick_of", [kv_tick, objectives_tick])


@TICKS
def test_the_status_the_decision_and_what_would_change_it(
    tick_of: Callable[..., AnyTick], explain: Callable[..., Result]
) -> None:
    tick = tick_of()
    outcome = explain(tick)
    assert outcome.exit_code == 0, outcome.output
    desired = tick.decision.desired
    status, decision = outcome.stdout.split("\nThe latest decision:\n")
    assert status.startswith(f"chat should have {desired} replicas since 2026-01-01T00:00:00Z: ")
    decision, changes = decision.split("What would change the number:\n")
    assert decision.startswith(f"{desired} replicas, {tick.decision.code}: {tick.decision.reason}")
    for entry in tick.decision.trail:
        assert entry.note in status
        assert entry.note in decision
    assert [change.what for change in what_if.changes(tick) if change.what not in changes] == []
    assert changes.count(" more ") + changes.count(" above ") > 0


@TICKS
def test_a_setting_that_is_tried(
    tick_of: Callable[..., AnyTick], explain: Callable[..., Result]
) -> None:
    outcome = explain(tick_of(), "--set", "minReplicas=4", "--set", "maxReplicas=4")
    assert outcome.exit_code == 0, outcome.output
    assert "With minReplicas=4 maxReplicas=4, and the present load:\n4 replicas" in outcome.stdout


@TICKS
def test_a_setting_that_the_rule_does_not_have(
    tick_of: Callable[..., AnyTick], explain: Callable[..., Result]
) -> None:
    outcome = explain(tick_of(), "--set", "replicas=4")
    assert outcome.exit_code == 1
    assert "no setting 'replicas'; there are minReplicas, maxReplicas, " in outcome.stderr


@TICKS
def test_a_number_that_is_held_without_metrics(
    tick_of: Callable[..., AnyTick], explain: Callable[..., Result]
) -> None:
    outcome = explain(tick_of(is_blind=True))
    assert outcome.exit_code == 0, outcome.output
    assert "MetricsMissing" in outcome.stdout
    assert "blind" in outcome.stdout
    assert "chat-0 (ReadTimeout)" in outcome.stdout


VARIANTS = [
    {"name": name, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "pricePerHour": price}
    for name, price in (("big", "9"), ("small", "2.5"))
]


@pytest.mark.parametrize(
    ("spec", "saved"),
    [
        ({}, "saves 12.0 replica hours a day: of"),
        (
            {"variants": VARIANTS, "objectives": {"ttft": "1s"}},
            "saves 12.0 replica hours a day, at a price of 30.00: of",
        ),
    ],
)
def test_what_zero_saves_and_costs(
    spec: dict[str, Any], saved: str, explain: Callable[..., Result]
) -> None:
    tick = kv_tick()
    idle = IdleDecision("Keep", "a request came", 42, ZeroTotals(7200.0, 3600.0, 4, 168.0))
    settings = replace(tick.settings, bounds=Bounds(1, 5, idle))
    tick = replace(tick, settings=settings)
    outcome = explain(replace(tick, decision=tick.decide_again()), **spec)
    assert outcome.exit_code == 0, outcome.output
    assert saved in outcome.stdout
    assert "the first tokens of the 4 so far came 168 s later, 42 s each" in outcome.stdout
    assert "Scale to zero" not in explain(kv_tick()).stdout


@pytest.mark.parametrize("scaling", [{}, {"mode": None}])
def test_a_field_without_a_value_has_its_default(
    scaling: object, explain: Callable[..., Result]
) -> None:
    outcome = explain(kv_tick(), scaling=scaling)
    assert (outcome.exit_code, outcome.exception) == (0, None)


def test_a_service_with_a_refused_spec_has_no_decision(explain: Callable[..., Result]) -> None:
    outcome = explain(kv_tick(), scaling={"mode": "Always"})
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith(
        "penstock explain: no decision is made on chat, whose spec is refused: spec.scaling.mode:"
    )


@pytest.mark.parametrize(
    ("num_bytes", "size"), [(3 << 30, "3.0 GiB"), (1 << 30, "1.0 GiB"), (19 << 20, "19.0 MiB")]
)
def test_the_time_of_the_last_starts(
    num_bytes: int, size: str, explain: Callable[..., Result]
) -> None:
    report = {"ok": True, "downloaded_bytes": num_bytes, "total_bytes": num_bytes, "seconds": 60}
    message = json.dumps(report | {"num_cache_hits": 0})
    ended = {"exitCode": 0, "startedAt": at(10), "finishedAt": at(70), "message": message}
    cold = ready_pod({"name": "fetch-model", "state": {"terminated": ended}})
    lines = explain(kv_tick(), pods=[cold, ready_pod(restartCount=1)]).stdout.splitlines()
    (row,) = [line.split("│")[1:-1] for line in lines if size in line]
    assert [cell.strip() for cell in row] == ["a", "2 s", "38 s", f"60 s ({size})", "30 s", "130 s"]
    assert "The last engines" not in explain(kv_tick()).stdout
