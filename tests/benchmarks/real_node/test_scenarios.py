"""`make real-node` runs every scenario of the folder."""

from pathlib import Path

from benchmarks.real_node import __main__ as program
from benchmarks.real_node import scenarios


def test_every_scenario_is_run() -> None:
    (folder,) = scenarios.__path__
    assert sorted(program.SCENARIOS) == sorted(path.stem for path in Path(folder).glob("*.py"))
