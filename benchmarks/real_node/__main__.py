"""Builds the images, starts a cluster with kubelets, installs the chart and runs every scenario on it.

    .venv/bin/python -m benchmarks.real_node --out DIR [--only quickstart ...] [--cluster NAME]

A JSON line for each step goes to DIR/results.jsonl. Exits with 1 if a step failed. --cluster: use a cluster
that is up, with the chart installed, and keep it.
"""

import asyncio
import json
import secrets
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from benchmarks.options import option_parser
from benchmarks.real_node.build_images import build_images
from benchmarks.real_node.images import run_checks
from benchmarks.real_node.lab import Lab, install_chart, open_lab, remove_cluster, start_cluster
from tests.support.tools.chart_tools import ensure_helm

from penstock.clients.machine.clock import monotonic
from penstock.local import cluster as clusters
from penstock.local.binaries import ensure_binaries
from penstock.local.gobuild import shared_cache
from penstock.local.kubelet.tools import ensure_tools
from penstock.local.versions import BINARIES_OF

# In this order: those that end a node come last.
SCENARIOS = (
    "quickstart",
    "kubectl_verbs",
    "scale_under_load",
    "rollouts",
    "adapters",
    "gateway_autoscaling",
    "policies",
    "pull_error",
    "memory_limit",
    "ephemeral_storage",
    "drain",
    "kubelet_restart",
    "node_loss",
)
Step = Callable[[], Awaitable[Mapping[str, object]]]


class Steps:
    """Runs steps, and writes a line of results for each."""

    def __init__(self, out: Path) -> None:
        self._file = out / "results.jsonl"
        self.failed: list[str] = []

    async def run(self, name: str, step: Step) -> bool:
        """Run a step. An exception is recorded, and the next step may run."""
        started_s = monotonic()
        record: dict[str, object] = {"step": name, "ok": True}
        try:
            record |= await step()
        except Exception as error:  # noqa: BLE001 - the other steps still tell something
            traceback.print_exc()
            record |= {"ok": False, "error": f"{type(error).__name__}: {error}"}
            self.failed.append(name)
        record["seconds"] = round(monotonic() - started_s, 1)
        line = json.dumps(record)
        with self._file.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)
        return bool(record["ok"])


async def run_scenarios(steps: Steps, lab: Lab, names: Sequence[str]) -> None:
    for name in names:
        module = import_module(f"benchmarks.real_node.scenarios.{name}")
        await steps.run(name, partial(module.run, lab))


async def build() -> Mapping[str, object]:
    await asyncio.to_thread(build_images)
    return {}


async def build_programs() -> Mapping[str, object]:
    """Download or build the programs of the cluster, and Helm."""

    def ensure() -> None:
        ensure_binaries(print, BINARIES_OF["kubelet"])
        ensure_tools(print)
        ensure_helm(print)

    await asyncio.to_thread(ensure)
    return {}


async def check() -> Mapping[str, object]:
    assert await asyncio.to_thread(run_checks), "a check of the images failed: see its record above"
    return {}


async def run_all(steps: Steps, out: Path, names: Sequence[str]) -> None:
    """Build, install, run and remove everything. A step that others need ends the run if it fails."""
    name = f"real-{secrets.token_hex(3)}"
    try:
        with shared_cache():
            built = await asyncio.gather(
                steps.run("images built", build), steps.run("programs built", build_programs)
            )
        if (
            all(built)
            and await steps.run("images checked", check)
            and await steps.run("cluster", lambda: start_cluster(name))
        ):
            async with open_lab(clusters.get(name), out) as lab:
                if await steps.run("chart", lambda: install_chart(lab)):
                    await run_scenarios(steps, lab, names)
    finally:
        await steps.run("removal", lambda: remove_cluster(name))


async def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--cluster")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    steps = Steps(arguments.out)
    if arguments.cluster:
        async with open_lab(clusters.get(arguments.cluster), arguments.out) as lab:
            await run_scenarios(steps, lab, arguments.only)
    else:
        await run_all(steps, arguments.out, arguments.only)
    print(f"failed: {', '.join(steps.failed) or 'none'}")
    return bool(steps.failed)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
