"""The check for retired words finds them in names and prose, and nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "retired_words.py"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("README.md", "The way\nback.", "way\nback"),
        ("CHANGELOG.md", "The way back.", "way back"),
        ("pyproject.toml", "x = 1 # two rooms of tests", "two rooms"),
        ("docs/glossary.md", "Whoever reads this.", "Whoever"),
        ("operator/penstock/seat.py", "", "seat"),
        ("operator/penstock/a.py", "class _Told:\n    pass\n", "Told"),
        ("engine/penstock_engine/a.py", "async def beside() -> None: ...\n", "beside"),
        ("benchmarks/a.py", '"""What became of requests."""\n', "What became of"),
        ("tests/a.py", "x = 1  # by and by\n", "by and by"),
        ("docs/glossary.md", "It is quantised.", "quantised"),
    ],
)
def test_a_retired_word_is_found(tmp_path: Path, name: str, text: str, word: str) -> None:
    result = check(tmp_path, name, text)
    assert result.returncode == 1
    assert result.stdout.startswith(f"{name}:1: {word!r}: say ")
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("operator/penstock/seatbelt.py", 'TOLD = "whoever"\n'),
        ("tests/a.py", "def told() -> None: ...\n"),
    ],
)
def test_other_words_are_not(tmp_path: Path, name: str, text: str) -> None:
    result = check(tmp_path, name, text)
    assert (result.returncode, result.stdout) == (0, "")


def check(tree: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    """Runs the check on a tree with one file."""
    script = tree / "tests" / "architecture" / SCRIPT.name
    for path in (script, tree / name):
        path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPT, script)
    (tree / name).write_text(text)
    return subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tree
    )
