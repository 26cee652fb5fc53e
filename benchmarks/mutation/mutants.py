"""Mutation testing: draws random mutants and runs the tests of their group against each.

    python -m benchmarks.mutation.mutants --seed 7 --per-group 25

Each mutant is applied to a copy of the tree. The tests that ran its statement come first, then the other
tests of the group, up to the first failure. Finished mutants are stored under out/, so a campaign can be
resumed. `--show` prints the survivors with their differences.
"""

import argparse
import difflib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage
from benchmarks.mutation.mutations import Mutation, mutations_of
from benchmarks.options import option_parser

ROOT = Path(__file__).parents[2]
CORE, GATEWAY = "operator/penstock/core", "operator/penstock/gateway"
ENGINE = "engine/penstock_engine"
# Time limit of a mutant that never ends: one or three times the time of the group, plus this.
SPARE_S = 60.0
# Memory limit of a mutant whose lists grow without end.
MAX_DATA_BYTES = 6 << 30
# pytest's exit codes: all passed; no test was selected.
PASSED, NO_TESTS = 0, 5


@dataclass(frozen=True, slots=True)
class Group:
    """Group of sources, as path patterns, with the tests that should detect their mutants."""

    sources: Sequence[str]
    tests: Sequence[str]


PLAN_TESTS = tuple(
    f"tests/core/{folder}" for folder in ("manifests", "observed", "reconcile", "rollout", "spec")
)
GROUPS = {
    "plan and rollout": Group(
        (
            f"{CORE}/reconcile/plan.py", f"{CORE}/reconcile/variant_split.py", f"{CORE}/spec/history.py",
            f"{CORE}/spec/revision.py", f"{CORE}/formats/strategic_merge.py", f"{CORE}/rollout/*.py",
        ),
        PLAN_TESTS,
    ),
    "routing and admission": Group(
        (f"{CORE}/routing/*.py",), ("tests/core/routing", "tests/core/rollout")
    ),
    "canary": Group((f"{CORE}/canary/*.py",), ("tests/core/canary",)),
    "scaling": Group(
        (
            f"{CORE}/scaling/by_objectives/*.py", f"{CORE}/scaling/by_kv/*.py",
            f"{CORE}/scaling/learned/*.py", f"{CORE}/scaling/variants/*.py", f"{CORE}/scaling/blind.py",
            f"{CORE}/scaling/decisions.py", f"{CORE}/scaling/delays.py",
        ),
        ("tests/core/scaling", "tests/controller/scaling/test_objective_scaler.py"),
    ),
    "gateway": Group((f"{GATEWAY}/**/*.py",), ("tests/gateway",)),
    "status": Group(
        (
            f"{CORE}/reconcile/status.py", f"{CORE}/reconcile/status_events.py",
            f"{CORE}/reconcile/conditions.py", f"{CORE}/reconcile/summary_conditions.py",
            f"{CORE}/observed/children.py",
        ),
        PLAN_TESTS,
    ),
    "engine core": Group((f"{ENGINE}/core/**/*.py",), ("tests/engine_core",)),
    "sampling": Group((f"{ENGINE}/sampling/*.py",), ("tests/engine_sampling",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    group: str
    path: str
    mutation: Mutation

    def difference(self, tree: Path) -> str:
        old = (tree / self.path).read_text().splitlines(keepends=True)
        new = self.mutation.source.splitlines(keepends=True)
        return "".join(difflib.unified_diff(old, new, self.path, self.path, n=1))


class Tests:
    """Tests of a group in a copy of the tree, with the lines that each runs and the total time."""

    def __init__(self, tree: Path, name: str) -> None:
        self.tree, self._group, self._slug = tree, GROUPS[name], name.replace(" ", "-")
        self._data = tree / f".coverage-{self._slug}"
        self.whole_s = 0.0

    def trace(self) -> None:
        """Run all tests with coverage. Raises SystemExit if one fails without a mutant."""
        config = self.tree / ".coveragerc"
        config.write_text("[run]\ndynamic_context = test_function\n")
        tracer = ("-m", "coverage", "run", f"--rcfile={config}", f"--data-file={self._data}")
        started_s = time.monotonic()
        code, output = self._run((*tracer, "-m", "pytest"), self._group.tests, limit_s=3600)
        self.whole_s = time.monotonic() - started_s
        if code != PASSED:
            sys.exit(f"{self._slug}: the tests fail without any fault:\n{output[-3000:]}")

    def notice(self, mutant: Mutant) -> str | None:
        """First test that fails with the mutant, or a time-out. None if the mutant survives."""
        # Time limits are multiples of the traced run of the whole group, which is slower than any run here.
        first, every = self._that_run(mutant), self._group.tests
        for tests, factor in ((first, 1), (every, 3)):
            if not tests:
                continue
            try:
                code, output = self._run(("-m", "pytest"), tests, factor * self.whole_s + SPARE_S)
            except subprocess.TimeoutExpired:
                return "no end within the limit"
            if code not in (PASSED, NO_TESTS):
                failed = [
                    line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))
                ]
                return failed[0][:200] if failed else f"pytest exits with {code}"
        return None

    def _that_run(self, mutant: Mutant) -> list[str]:
        """Test functions that ran the statement, at most 40, to fail fast."""
        data = coverage.CoverageData(str(self._data))
        data.read()
        lines = data.contexts_by_lineno(str(self.tree / mutant.path))
        wanted = range(mutant.mutation.first_line, mutant.mutation.last_line + 1)
        names = sorted({name for line in wanted for name in lines.get(line, ()) if name})
        functions = {name.rpartition(".")[2] for name in names}
        return [*self._group.tests, "-k", " or ".join(sorted(functions)[:40])] if functions else []

    def _run(self, command: Sequence[str], tests: Sequence[str], limit_s: float) -> tuple[int, str]:
        flags = ("-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=line", "-n0")
        environment = os.environ | {
            "PYTHONPATH": f"{self.tree}/operator:{self.tree}/engine",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        ended = subprocess.run(
            [sys.executable, *command, *flags, *tests], cwd=self.tree, env=environment,
            capture_output=True, text=True, timeout=limit_s, check=False, preexec_fn=_bound_memory,
        )  # fmt: skip
        return ended.returncode, ended.stdout + ended.stderr


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))


def drawn(tree: Path, name: str, num: int, seed: int) -> list[Mutant]:
    """Draw mutants of a group, all possible mutations with equal probability."""
    paths = sorted(path for pattern in GROUPS[name].sources for path in tree.glob(pattern))
    every = [
        Mutant(name, str(path.relative_to(tree)), mutation)
        for path in paths
        for mutation in mutations_of(path.read_text())
    ]
    return random.Random(f"{seed} {name}").sample(every, min(num, len(every)))


def campaign(
    tree: Path, name: str, args: argparse.Namespace, ledger: Path
) -> Iterator[dict[str, str]]:
    known = {}
    if ledger.exists():
        known = {e["difference"]: e for e in map(json.loads, ledger.read_text().splitlines())}
    tests = Tests(tree, name)
    for mutant in drawn(tree, name, args.per_group, args.seed):
        difference = mutant.difference(tree)
        if difference in known:
            yield known[difference]
            continue
        if not tests.whole_s:
            tests.trace()
        path = tree / mutant.path
        whole = path.read_text()
        path.write_text(mutant.mutation.source)
        started_s = time.monotonic()
        try:
            noticed = tests.notice(mutant)
        finally:
            path.write_text(whole)
        entry = {
            "group": name, "operator": mutant.mutation.operator, "difference": difference,
            "noticed": noticed or "", "took_s": f"{time.monotonic() - started_s:.1f}",
        }  # fmt: skip
        with ledger.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(f"{'killed' if noticed else 'SURVIVED'} {mutant.path}:{mutant.mutation.first_line} "
              f"{mutant.mutation.operator}, {entry['took_s']} s", flush=True)  # fmt: skip
        yield entry


def main() -> None:
    parser = option_parser(__doc__, seed=7, per_group=25)
    parser.add_argument("--groups", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--show", action="store_true", help="print the survivors' differences")
    args = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    out = ROOT / "out" / "mutants"
    tree = out / f"tree-{commit}-{os.getpid()}"
    tree.mkdir(parents=True)
    try:
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
        ledger = out / f"{commit}-seed{args.seed}.jsonl"
        entries = [e for name in args.groups for e in campaign(tree, name, args, ledger)]
    finally:
        shutil.rmtree(tree)
    drawn_of = Counter(entry["group"] for entry in entries)
    killed_of = Counter(entry["group"] for entry in entries if entry["noticed"])
    for name, num in drawn_of.items():
        print(f"{name}: {killed_of[name]} of {num} killed")
    print(
        f"together: {killed_of.total()} of {drawn_of.total()} killed at {commit}, seed {args.seed}"
    )
    if args.show:
        for entry in entries:
            if not entry["noticed"]:
                print(f"\n{entry['operator']}\n{entry['difference']}")


if __name__ == "__main__":
    main()
