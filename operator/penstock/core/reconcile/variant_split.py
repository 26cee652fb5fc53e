"""Splits the replicas of each side of a service among its variants (kinds of nodes)."""

from collections.abc import Mapping

from penstock.core.observed.children import ObservedState
from penstock.core.spec.service import ServiceSpec

VariantSplit = Mapping[str, int]
"""Replicas by variant; a service without variants has the single variant ""."""


def choose_variant_split(
    spec: ServiceSpec, observed: ObservedState, desired: VariantSplit, total: int
) -> VariantSplit:
    """Choose the variants that all of the traffic runs on.

    The scaler's `desired` split comes first, then the split of the stable revision's Deployments. If
    both are empty, each variant gets its minimum and the first variant the rest of `total`.
    """
    names = list(spec.placed)
    serving = observed.deployments_of(observed.stable)
    current = {name: deployment.replicas for name, deployment in serving.items()}
    for known in (desired, current):
        split = {name: known.get(name, 0) for name in names}
        if sum(split.values()):
            return split
    split = {variant.name: variant.min_replicas for variant in spec.variants} or {"": 0}
    split[names[0]] += max(0, total - sum(split.values()))
    return split


def split_replicas(replicas: int, proportions: VariantSplit) -> VariantSplit:
    """Divide replicas in the given proportions, in whole numbers (largest remainder method).

    The result is deterministic, so a canary and its control of the same size run on the same kinds of
    nodes. Replicas that equal the sum of `proportions` are divided exactly so.
    """
    total = sum(proportions.values())
    if not total:
        return {name: replicas if i == 0 else 0 for i, name in enumerate(proportions)}
    quotas = {name: divmod(replicas * count, total) for name, count in proportions.items()}
    unassigned = replicas - sum(whole for whole, _ in quotas.values())
    rounded_up = sorted(quotas, key=lambda name: -quotas[name][1])[:unassigned]
    return {name: whole + (name in rounded_up) for name, (whole, _) in quotas.items()}
