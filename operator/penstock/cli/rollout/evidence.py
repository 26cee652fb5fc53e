"""Prints a canary's stored evidence as tables: by prompt length and by tenant."""

from rich.table import Table

from penstock.cli.rollout.status import console, percent
from penstock.cli.rollout.target import RolloutTarget
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import CONFIG_MAPS
from penstock.core.canary.counts import Counts
from penstock.core.manifests.stored_record import TRIAL
from penstock.core.rollout.by_prompt_length import MeanPair, compare_by_prompt_length
from penstock.core.rollout.by_tenant import compare_by_tenant
from penstock.core.rollout.trial import Trial, from_record
from penstock.errors import NotFound


async def read_trial(kube: Kube, namespace: str, target: RolloutTarget) -> Trial | None:
    """Read the trial of the last canary; None if none was judged."""
    body = await kube.get(target.resource, namespace, target.name)
    try:
        stored = await kube.get(CONFIG_MAPS, namespace, TRIAL.name(target.record_prefix))
    except NotFound:
        return None
    return from_record(TRIAL.record_of(stored, body["metadata"]["uid"]))


def print_by_bin(trial: Trial) -> None:
    """Print mean latencies of canary and control for each range of prompt lengths."""
    table = Table("prompt tokens", "TTFT", "control", "", "TPOT", "control", "", "requests")
    for each in compare_by_prompt_length(trial.canary, trial.control):
        upper = "" if each.high_tokens is None else f" to {each.high_tokens:,}"
        table.add_row(
            f"{each.low_tokens:,}{upper}", *_pair(each.ttft), *_pair(each.tpot),
            f"{each.ttft.canary_n:,} / {each.ttft.control_n:,}",
        )  # fmt: skip
    console.print(table)


def print_by_tenant(trial: Trial) -> None:
    """Print mean latencies and failed requests of canary and control for each tenant."""
    table = Table(
        "tenant", "TTFT", "control", "", "TPOT", "control", "", "requests", "failed", "control"
    )
    for each in compare_by_tenant(trial.canary, trial.control):
        table.add_row(
            each.name or "all others", *_pair(each.ttft), *_pair(each.tpot),
            f"{each.canary.requests:,} / {each.control.requests:,}",
            _share(each.canary), _share(each.control),
        )  # fmt: skip
    console.print(table)


def _pair(mean_pair: MeanPair) -> tuple[str, str, str]:
    """Format the canary's mean, the control's, and their relative difference."""
    both = [
        "" if s is None else f"{1000 * s:,.1f} ms"
        for s in (mean_pair.canary_s, mean_pair.control_s)
    ]
    return both[0], both[1], percent(mean_pair.effect)


def _share(counts: Counts) -> str:
    return f"{100 * counts.share:.1f} %" if counts.requests else ""
