"""Evaluates every panel of the dashboards in a Prometheus that scraped a real run, and draws two of them.

A local cluster runs a service with objectives under load, a scale step, a canary, adapters and a kill. That
Prometheus also evaluates the alert rules. Prints the number of series of each panel and of each quantity that
an alert compares with a limit. Exits with 1 if a rule failed, or if one has none where there should be some.

.venv/bin/python -m benchmarks.cluster.dashboards
"""

import asyncio
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml
from aiohttp.test_utils import unused_port
from benchmarks.cluster.campaigns.alert_rules import RuleResult, rule_results
from benchmarks.cluster.campaigns.dashboard_pictures import draw
from benchmarks.cluster.campaigns.dashboard_queries import (
    EMPTY,
    Panel,
    Series,
    Span,
    evaluate,
    read_marks,
    read_panels,
)
from benchmarks.cluster.campaigns.dashboard_run import make_models, play
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.options import option_parser
from tests.support.tools import prometheus as binaries

from penstock.demo.load import corpus
from penstock.demo.model import MODEL_NAME, ensure_model
from penstock.local.cluster import Cluster

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "penstock"
SCRAPE_S = 2
DRAWN = ("overview", "rollout")
READY_TIMEOUT_S = 60
# Step of the queries of annotations.
MARK_STEP_S = 60

RULES = CHART / "files" / "rules" / "alerts.yaml"


@dataclass(frozen=True, slots=True)
class Results:
    """Results of the queries.

    panels: lines by dashboard and title. marks: color, text and times.
    """

    panels: dict[str, dict[str, list[Series]]]
    marks: list[tuple[str, str, list[float]]]
    rules: list[RuleResult]


@contextmanager
def prometheus(cluster: Cluster, folder: Path, port: int) -> Iterator[httpx.Client]:
    """Run a Prometheus with examples/prometheus.yaml against the cluster."""
    shutil.copy(RULES, folder / "rules.yaml")
    config = folder / "prometheus.yaml"
    config.write_text(json.dumps(_config(cluster)))
    address = f"127.0.0.1:{port}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                binaries.ensure("prometheus", print), f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
            _wait_until_ready(client)
            yield client
    finally:
        process.terminate()
        process.wait()


def _config(cluster: Cluster) -> dict[str, object]:
    """The example with a short interval, and with the address and credentials of the cluster."""
    config = yaml.safe_load((ROOT / "examples" / "prometheus.yaml").read_text())
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    access = {
        "api_server": kubeconfig["clusters"][0]["cluster"]["server"],
        "tls_config": {"ca_file": kubeconfig["clusters"][0]["cluster"]["certificate-authority"]},
        "authorization": {"credentials": kubeconfig["users"][0]["user"]["token"]},
    }
    config["global"] = {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": "5s"}
    for job in config["scrape_configs"]:
        job["kubernetes_sd_configs"] = [each | access for each in job["kubernetes_sd_configs"]]
    return dict(config)


def _wait_until_ready(client: httpx.Client) -> None:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            if client.get("/-/ready").status_code == 200:
                return
        except httpx.TransportError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(0.1)


async def run(folder: Path) -> Results:
    """Play the run and evaluate panels, annotations and rules over its time."""
    models = folder / "models"
    make_models(models, ensure_model(ROOT / "docs") / MODEL_NAME)
    port, gpus = unused_port(), {"nvidia.com/gpu": "2"}
    values = {"operator": {"metricsHosts": [f"127.0.0.1:{port}"]}}
    async with temporary_stage("dashboards", models, values=values, allocatable=gpus) as stage:
        with prometheus(stage.cluster, folder, port) as client:
            start_s = time.time()
            await play(stage, corpus(ROOT), str(client.base_url))
            return _results(client, Span(start_s, time.time(), SCRAPE_S))


def _results(client: httpx.Client, span: Span) -> Results:
    panels: dict[str, dict[str, list[Series]]] = {}
    for panel in read_panels(ROOT / "dashboards"):
        lines = [line for query in panel.queries for line in evaluate(client, query, span)]
        panels.setdefault(panel.board, {})[panel.title] = lines
    marks = []
    for color, query, value_is_time in read_marks(ROOT / "dashboards"):
        for line in evaluate(client, query, span):
            times = [value / 1000 for value in line.values] if value_is_time else line.times_s
            marks.append((color, query.legend, _starts(times)))
    return Results(panels, marks, rule_results(client, span))


def _starts(times_s: Sequence[float]) -> list[float]:
    """The first of times that follow one another within a step, which Grafana joins to one mark."""
    ordered = sorted(set(times_s))
    return [
        time_s
        for before_s, time_s in zip([0.0, *ordered], ordered, strict=False)
        if time_s - before_s > MARK_STEP_S
    ]


def report(panels: list[Panel], results: Results) -> list[str]:
    """Print the number of series of each panel, rule and annotation. Returns the problems."""
    problems = []
    for panel in panels:
        lines = results.panels[panel.board][panel.title]
        reason = EMPTY.get((panel.board, panel.title), "")
        print(f"{panel.board:10} {panel.title:45} {len(lines):4}  {reason}".rstrip())
        if bool(lines) == bool(reason):
            problems.append(f"{panel.board}: {panel.title} has {len(lines)} series")
    for rule in results.rules:
        print(f"{rule.name:36} {rule.health}")
        for quantity, count in rule.series.items():
            print(f"{count:7}  {quantity}")
        problems += rule.problems
    for color, query, _ in read_marks(ROOT / "dashboards"):
        count = sum(len(times) for each, _, times in results.marks if each == color)
        print(f"annotation {query.legend:45} {count:4}")
        if not count:
            problems.append(f"annotation {query.legend} has no mark")
    return problems


def main() -> None:
    parser = option_parser(__doc__, pictures=ROOT / "docs" / "assets")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "out" / "dashboards.pickle",
        help="File with the results of the queries, to draw them again.",
    )  # fmt: skip
    parser.add_argument(
        "--draw-only", action="store_true", help="Draw the results of the last run."
    )
    args = parser.parse_args()
    if not args.draw_only:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(run(Path(folder)))
        args.results.parent.mkdir(parents=True, exist_ok=True)
        args.results.write_bytes(pickle.dumps(found))
    results: Results = pickle.loads(args.results.read_bytes())
    panels = read_panels(ROOT / "dashboards")
    problems = report(panels, results)
    for name in DRAWN:
        own = [panel for panel in panels if panel.board == name]
        draw(own, results.panels[name], results.marks, args.pictures / f"{name}.png")
    print("\n".join(problems))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
