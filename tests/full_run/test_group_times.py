"""Times of groups, and which group a test is in."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.full_run.group_times import GroupTimes, processor_s
from tests.full_run.groups import LONGEST, SCENARIOS, group

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("tests/gateway/http/test_sse.py::test_it[a/b]", "tests/gateway"),
        ("tests/core/scaling/by_kv/test_rule.py::test_it", "tests/core/scaling"),
        ("e2e/dedicated_pool/test_dedicated_pool.py::test_it", "e2e/adapters"),
        ("e2e/documentation/test_documentation.py::test_it[README.md]", "e2e/documentation"),
        ("e2e/quickstart/test_quickstart.py::test_it", "e2e/others"),
    ],
)
def test_a_test_is_in_one_group(nodeid: str, name: str) -> None:
    assert group(nodeid) == name


def test_the_groups_that_start_first_exist() -> None:
    folders = {
        path for top in ("tests", "e2e") for path in (ROOT / top).rglob("*") if path.is_dir()
    }
    tests = [f"{path.relative_to(ROOT)}/test_it.py::test_it" for path in folders]
    assert {group(nodeid) for nodeid in tests} >= {*LONGEST}
    assert {path.relative_to(ROOT).as_posix() for path in folders} >= SCENARIOS.keys()


def test_the_table_has_the_longest_first(tmp_path: Path) -> None:
    times = GroupTimes(tmp_path / "out" / "times.txt", lambda nodeid: nodeid[0])
    for nodeid, seconds in [("a1", 1.0), ("b1", 2.5), ("a1", 0.25), ("b2", 0.5)]:
        times.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=seconds))  # type: ignore[arg-type]
    for used_s in ({"a": 2.0}, {"a": 1.0, "b": 4.0}):
        times.pytest_testnodedown(SimpleNamespace(workeroutput={"processor_s": used_s}))
    times.pytest_testnodedown(SimpleNamespace())  # a worker that has crashed
    times.pytest_sessionfinish()
    lines = (tmp_path / "out" / "times.txt").read_text().splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["b", "3.0", "4.0"],
        ["a", "1.2", "3.0"],
        ["all", "4.2", "7.0"],
        [],
        ["2.5", "b1"],
        ["1.2", "a1"],
        ["0.5", "b2"],
    ]


def test_processor_time_includes_that_of_ended_processes() -> None:
    before_s = processor_s()
    spin = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert processor_s() - before_s >= 0.4  # /proc counts in hundredths
