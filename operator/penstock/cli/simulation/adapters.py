"""The adapter scenarios of `penstock simulate`: runs rules of adapter placement, and compares them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.table import Table

from penstock.cli.output.file import write_output
from penstock.cli.output.terminal import make_console
from penstock.sim.adapters.run import RULES, Summary, run
from penstock.sim.adapters.scenario import WARM_UP_S, AdapterScenario
from penstock.sim.processes import map_in_processes
from penstock.sim.report import Estimate

# Columns of the report: title, field of Summary, and format.
COLUMNS = (
    ("TTFT p50 s", "ttft_p50_s", "{:.2f}"),
    ("TTFT p99 s", "ttft_p99_s", "{:.2f}"),
    ("loads/min", "loads_per_min", "{:.0f}"),
    ("misses", "miss_share", "{:.1%}"),
    ("refused", "refused", "{:.0f}"),
)


def parse_rules(policy: str) -> list[str]:
    """Rules of --policy, separated by commas; all of them if it is empty. Raises ValueError."""
    rules = [each.strip() for each in policy.split(",")] if policy else list(RULES)
    unknown = sorted(set(rules) - RULES.keys())
    if unknown:
        raise ValueError(f"no rule {unknown[0]!r} of adapter placement; rules: {', '.join(RULES)}")
    return list(dict.fromkeys(rules))


def compare(
    scenario: AdapterScenario, rules: Sequence[str], seeds: int, jobs: int
) -> dict[str, list[Summary]]:
    """Run each rule with seeds 0 to seeds-1 in `jobs` processes. Returns the summaries by rule."""
    work = [(rule, seed) for rule in rules for seed in range(seeds)]
    summaries = map_in_processes(partial(_run, scenario), work, jobs)
    return {rule: summaries[n * seeds : (n + 1) * seeds] for n, rule in enumerate(rules)}


def _run(scenario: AdapterScenario, work: tuple[str, int]) -> Summary:
    return run(scenario, *work)


def print_report(scenario: AdapterScenario, results: Mapping[str, Sequence[Summary]]) -> None:
    """Print a table with a row for each rule, and what it was run with."""
    spec, seeds = scenario.adapters, len(next(iter(results.values())))
    table = Table(title=f"{scenario.name}, {seeds} {'seed' if seeds == 1 else 'seeds'}")
    table.add_column("rule")
    for title, *_ in COLUMNS:
        table.add_column(title, justify="right")
    for rule, summaries in results.items():
        figures = (
            Estimate.of(getattr(each, field) for each in summaries).text(form)
            for _, field, form in COLUMNS
        )
        table.add_row(rule, *figures)
    console = make_console()
    console.print(table)
    console.print(
        f"{spec.total} adapters, {spec.pods} engines with {spec.slots} slots, {spec.rps:g} requests/s; the "
        f"first {WARM_UP_S:g} s do not count"
    )
    if "bound" in results:
        console.print("bound: no rule can be better: TTFT without any load, and the fewest loads")


def write_json(
    path: Path, scenario: AdapterScenario, results: Mapping[str, Sequence[Summary]]
) -> None:
    """Write the summaries of all seeds by rule. path: - is standard output."""
    content = {
        "scenario": scenario.model_dump(mode="json"),
        "rules": {rule: [asdict(each) for each in runs] for rule, runs in results.items()},
    }
    write_output(path, json.dumps(content, indent=1) + "\n")


def compare_and_report(
    scenario: AdapterScenario, rules: Sequence[str], seeds: int, jobs: int, json_file: Path | None
) -> None:
    """Compare the rules on a scenario, and print and write the results."""
    results = compare(scenario, rules, seeds, jobs)
    print_report(scenario, results)
    if json_file is not None:
        write_json(json_file, scenario, results)
