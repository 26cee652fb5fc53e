"""Which failed tests of a full run are run again, and what the run's result is then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from full_run.rerun_alone import RerunAlone


def pytest_configure(config):
    if config.getoption("numprocesses", None):
        root = config.rootpath
        config.pluginmanager.register(RerunAlone(root, root / "out" / "flaky.txt"))
"""

FAILS_ONCE = """
from pathlib import Path

def test_once():
    ran = Path(__file__).with_suffix(".ran")
    if not ran.exists():
        ran.touch()
        assert False
"""

FAILS = "def test_always():\n    assert False\n"
PASSES = "def test_fine():\n    pass\n"


@pytest.mark.parametrize(
    ("tests", "status", "flaky", "last_line"),
    [
        (
            {"a": FAILS_ONCE, "b": PASSES},
            0,
            ["test_a.py::test_once"],
            "FLAKY test_a.py::test_once: failed in the full run, passed alone",
        ),
        (
            {"a": FAILS_ONCE, "b": FAILS},
            1,
            ["test_a.py::test_once"],
            "FLAKY test_a.py::test_once: failed in the full run, passed alone",
        ),
        ({"a": FAILS}, 1, [], "1 failed"),
        ({f"a{n}": FAILS_ONCE for n in range(11)}, 1, [], "11 failed"),
        ({"a": FAILS_ONCE, "b": "import nothing_of_this_name"}, 1, [], "1 failed, 1 error"),
        (
            {"a": FAILS_ONCE, "b": "import os\n\ndef test_exits():\n    os._exit(1)\n"},
            1,
            [],
            "2 failed",
        ),
    ],
    ids=["flaky", "flaky and broken", "broken", "many", "collection", "crash"],
)
def test_a_run_with_failed_tests(
    tmp_path: Path, tests: dict[str, str], status: int, flaky: list[str], last_line: str
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, text in tests.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", "-p", "xdist", "--numprocesses", "2"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    assert (tmp_path / "out" / "flaky.txt").read_text().split() == flaky
    assert last_line in done.stdout.splitlines()[-1]
