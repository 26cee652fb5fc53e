"""Compiled modules match the sources; without a compiler the simulator is interpreted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.sim import compiled, engine

PROGRAM = """
import sys
from pathlib import Path
from penstock.sim import compiled
compiled.use(compiled.built(sys.argv[1:]))
from penstock.sim import clock
from penstock.sim.run import run
from penstock.sim.scenario import load
scenario = load("llm-d-ramp").model_copy(update={"duration_s": 60.0})
requests = run(scenario, "hpa-queue", 0).services[0].gateway.requests
print(Path(clock.__file__).suffix, sum(r.end_s for r in requests).hex())
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    return tmp_path / "compiled"


def output_words(*modules: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *modules], capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_compiled_module_is_kept_used_and_gives_the_same(cache: Path) -> None:
    suffix, ends = output_words("penstock.sim.clock", "penstock.sim.batch")
    [folder] = cache.iterdir()
    built_at = folder.stat().st_mtime_ns
    assert suffix == ".so"
    assert output_words("penstock.sim.clock", "penstock.sim.batch") == [suffix, ends]
    assert [f.stat().st_mtime_ns for f in cache.iterdir()] == [built_at]
    assert output_words() == [".py", ends]


def test_all_that_is_imported_of_ours_is_a_source() -> None:
    sources = compiled.sources_of(["penstock.sim.engine"])
    assert {
        "penstock",
        "penstock.core.scaling.signals",
        "penstock_engine.core.waiting_queue",
    } <= sources.keys()
    assert not any(name.startswith("penstock.core.scaling.by_objectives") for name in sources)


def test_another_source_or_choice_is_another_build(tmp_path: Path) -> None:
    modules = ["penstock.sim.clock"]
    sources = compiled.sources_of(modules)
    other = tmp_path / "clock.py"
    other.write_text(sources["penstock.sim.clock"].read_text() + "\n")
    changed = {**sources, "penstock.sim.clock": other}
    digest = compiled.digest_of(modules, sources)
    assert compiled.digest_of(modules, dict(sources)) == digest
    assert compiled.digest_of(modules, changed) != digest
    assert compiled.digest_of(["penstock.sim.batch"], sources) != digest


@pytest.mark.parametrize(
    ("of", "name", "answer"),
    [(compiled.shutil, "which", None), (compiled, "find_spec", None)],
    ids=["no C compiler", "no mypyc"],
)
def test_where_nothing_can_be_compiled_all_is_interpreted(
    monkeypatch: pytest.MonkeyPatch, cache: Path, of: object, name: str, answer: None
) -> None:
    def missing(_: str) -> None:
        return answer

    monkeypatch.setattr(of, name, missing)
    assert compiled.built(["penstock.sim.clock"]) is None
    assert not cache.exists()


def test_a_failed_compilation_is_not_repeated(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    tries: list[Path] = []

    def failing(work: Path, _: object) -> str:
        tries.append(work)
        return "no such thing"

    monkeypatch.setattr(compiled, "_compile", failing)
    for _ in range(2):
        assert compiled.built(["penstock.sim.clock"]) is None
    assert len(tries) == 1
    [folder] = cache.iterdir()
    assert (folder / "failed.txt").read_text() == "no such thing"


def test_wrong_arguments_are_refused_before_modules_are_compiled(cache: Path) -> None:
    command = [sys.executable, "-m", "penstock", "simulate", "llm-d-ramp", "--policy", "nobody"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("no policy 'nobody'") == 1
    assert not cache.exists()


def test_loaded_modules_are_not_replaced(cache: Path) -> None:
    assert engine.__name__ in sys.modules
    compiled.prefer([])
    assert compiled.used() is None
    assert not cache.exists()
