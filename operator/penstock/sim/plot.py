"""Plots one run: load, replicas by state, latencies against objectives, reasons of decisions."""

from pathlib import Path
from typing import Any

from penstock.clients.machine.pyplot import pyplot
from penstock.core.spec.objectives import UNBOUNDED_S
from penstock.sim.report import changes
from penstock.sim.run import Run
from penstock.sim.service import Service

BIN_S = 30.0
COLORS = {"waiting": "#bab0ac", "starting": "#f2cf5b", "ready": "#4c78a8", "draining": "#b07aa1"}


def draw(run: Run, path: Path) -> None:
    """Write a picture with one column per service. The path's suffix gives the format."""
    plt = pyplot()

    count = len(run.services)
    figure, axes = plt.subplots(
        5, count, sharex=True, squeeze=False, figsize=(11 * count, 13), layout="constrained"
    )
    for column, service in enumerate(run.services):
        _load(axes[0][column], service)
        _replicas(axes[1][column], service, run.scenario.duration_s)
        _latency(axes[2][column], service, "ttft_s", service.spec.ttft_s, "TTFT, s")
        _latency(axes[3][column], service, "tpot_s", service.spec.tpot_s, "TPOT, s")
        _reasons(axes[4][column], service, run.scenario.duration_s)
        axes[0][column].set_title(f"{service.spec.name}: {run.scenario.name}, seed {run.seed}")
        axes[4][column].set_xlabel("seconds")
        axes[4][column].set_xlim(0, run.scenario.duration_s)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _load(axes: Any, service: Service) -> None:
    """Plot arrivals/s, and the share of them that missed an objective, were shed or failed."""
    bins: dict[int, list[bool]] = {}
    for request in service.gateway.requests:
        met = request.meets(service.spec.ttft_s, service.spec.tpot_s)
        bins.setdefault(int(request.arrival_s // BIN_S), []).append(met)
    at = [index * BIN_S for index in sorted(bins)]
    axes.step(at, [len(bins[i]) / BIN_S for i in sorted(bins)], where="post", label="arrivals")
    missed = [bins[i].count(False) / BIN_S for i in sorted(bins)]
    axes.fill_between(at, missed, step="post", color="#e45756", alpha=0.7, label="missed")
    axes.set_ylabel("requests/s")
    axes.legend(loc="upper right")


def _replicas(axes: Any, service: Service, duration_s: float) -> None:
    census = service.fleet.census
    census = [c for c in census if c.at_s <= duration_s]
    at = [c.at_s for c in census] + [duration_s]
    names = ["ready", "draining", "starting", "waiting"]
    layers = [[getattr(c, state) for c in census] for state in names]
    axes.stackplot(
        at, [[*layer, layer[-1]] for layer in layers], step="post", labels=names,
        colors=[COLORS[name] for name in names], alpha=0.8,
    )  # fmt: skip
    axes.set_ylabel("replicas")
    axes.legend(loc="upper right")


def _latency(axes: Any, service: Service, of: str, objective_s: float, label: str) -> None:
    points = [
        (r.arrival_s, value)
        for r in service.gateway.requests
        if r.outcome == "ended" and (value := getattr(r, of)) is not None
    ]
    axes.plot([x for x, _ in points], [y for _, y in points], ".", ms=2, alpha=0.4)
    if objective_s < UNBOUNDED_S:
        axes.axhline(objective_s, color="#e45756", lw=1)
    axes.set_ylabel(label)
    axes.set_yscale("log")


def _reasons(axes: Any, service: Service, duration_s: float) -> None:
    """Plot the desired replicas and label each change with the code of its reason."""
    records = [r for r in service.scaler.records if r.at_s <= duration_s]
    axes.step([r.at_s for r in records], [r.decision.desired for r in records], where="post")
    codes = {r.at_s: r.decision.code for r in records}
    for at_s, by in changes(service.scaler.records, duration_s):
        axes.annotate(
            f"{by:+d} {codes[at_s]}", (at_s, 0.02), xycoords=("data", "axes fraction"), fontsize=6,
            rotation=90, va="bottom",
        )  # fmt: skip
    axes.set_ylabel("desired")
