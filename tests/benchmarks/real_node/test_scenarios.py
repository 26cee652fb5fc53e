"""`make real-node` runs every scenario of the folder."""

from pathlib import Path

from benchmarks.real_node import __main__ as program


def test_every_scenario_is_run() -> None:
    folder = Path(program.__file__).parent / "scenarios"
    assert sorted(program.SCENARIOS) == sorted(path.stem for path in folder.glob("*.py"))
