"""Search of the frontier: tuning, cost at equal attainment, and no run made twice."""

from pathlib import Path

import pytest
from benchmarks.simulator.frontier import __main__ as command
from benchmarks.simulator.frontier import scenarios
from benchmarks.simulator.frontier.case import Case
from benchmarks.simulator.frontier.grids import GRIDS
from benchmarks.simulator.frontier.scenarios import Recorded, Slice, find_scenario
from benchmarks.simulator.frontier.search import Point, Result, Sweep, crossing, price

from penstock.sim import policies
from penstock.sim.baselines.registry import PUBLISHED
from penstock.sim.profile import profile

PROFILE = policies.engine_profile(profile("llama-3.1-8b-a100"))
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(
    f"2023-11-16 18:{i // 60:02}:{i % 60:02}.0000000,2000,40" for i in range(240)
)


def point(attainment: float, hours: float, spread: float = 0.0) -> Point:
    """Point of the frontier, averaged over two seeds."""
    both = (attainment - spread, attainment + spread)
    return Point({"target": hours}, both, (hours - spread, hours + spread), hours / 2, 0.0)


def test_the_cost_is_where_the_line_between_two_settings_meets_the_target() -> None:
    points = [point(0.95, 5.0), point(0.98, 6.0), point(1.0, 8.0)]
    found = crossing(points, 0.99)
    assert found is not None
    assert (found.short, found.enough) == (points[1], points[2])
    assert found.costs == pytest.approx((7.0, 7.0))
    assert price(points, 0.99) == pytest.approx(7.0)


def test_a_seed_that_attains_more_is_charged_for_it() -> None:
    """0.01 of attainment costs one hour here, so a seed 0.01 above the mean needs one hour less."""
    found = crossing([point(0.97, 5.0, 0.01), point(1.0, 8.0, 0.01)], 0.99)
    assert found is not None
    low, high = found.costs
    assert low == pytest.approx(7.0 - 0.01 + 1.0)
    assert high == pytest.approx(7.0 + 0.01 - 1.0)


def test_cost_is_undefined_if_nothing_attains_and_the_least_if_all_attain() -> None:
    never, always = [point(0.9, 5.0), point(0.95, 9.0)], [point(0.995, 4.0), point(1.0, 5.0)]
    assert price(never, 0.99) == float("inf")
    assert price(always, 0.99) == 4.0
    assert Result("hpa-kv", "none", tuple(never), None, 0.99).costs is None
    ours = Result("penstock", "deadline", tuple(always), None, 0.99)
    other = Result("hpa-kv", "deadline", (point(0.995, 5.0),), None, 0.99)
    saving = ours.saving(other)
    assert saving is not None
    assert saving.mean == pytest.approx(0.2)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tiny.csv").write_text(TRACE)
    recorded = Recorded(
        "tiny.csv", "azure", 12.0, "llama-3.1-8b-a100", 2.0, (Slice(0, 60),), (Slice(60, 60),)
    )
    monkeypatch.setitem(scenarios.TRACES, "tiny", recorded)
    return tmp_path


def test_bisection_runs_few_settings_and_each_only_once(tiny: Path) -> None:
    grid = GRIDS["static"]
    case = Case(find_scenario("tiny-30", tiny), "tuning", "deadline", "static")
    points = Sweep(grid, {}, 0.99).points(tiny / "runs", case, range(1))
    assert len(points) < 6  # of sixteen
    assert points[0].attainment < 0.99 <= points[-1].attainment
    written = {path: path.stat().st_mtime_ns for path in (tiny / "runs").iterdir()}
    assert len(written) == len(points)
    again = Sweep(grid, {}, 0.99).points(tiny / "runs", case, range(1))
    assert again == points
    assert {path: path.stat().st_mtime_ns for path in (tiny / "runs").iterdir()} == written


def test_the_command_tells_and_draws(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(
        [
            "tiny-30", "--rules", "static", "oracle", "--seeds", "2", "--admission", "deadline",
            "--traces", str(tiny), "--cache", str(tiny / "out" / "runs"),
            "--plot", str(tiny / "frontier.png"),
        ]
    )  # fmt: skip
    told = capsys.readouterr().out
    assert "replicas=" in told
    assert "oracle" in told
    assert (tiny / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_a_world_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither"):
        find_scenario("azure-soon", tmp_path)


def test_each_part_of_a_world_is_other_data(tiny: Path) -> None:
    tuning, reported = (
        find_scenario("tiny-30", tiny).run_of(part, "none", 3)[0] for part in ("tuning", "report")
    )
    assert tuning.services[0].workload != reported.services[0].workload
    assert tuning.services[0].admission == "none"
    ramp = find_scenario("llm-d-ramp", tiny)
    assert ramp.run_of("tuning", "none", 3)[1] != ramp.run_of("report", "none", 3)[1]


def test_every_rule_has_a_grid() -> None:
    assert list(GRIDS) == [*PUBLISHED, "oracle"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_point_of_the_grid_builds(name: str) -> None:
    points = list(GRIDS[name].combinations())
    assert 1 < len(points) <= 48
    assert len({tuple(sorted(p.items())) for p in points}) == len(points)
    for knobs in points:
        assert PUBLISHED[name].build(PROFILE, **knobs).period_s > 0
