"""How the pods of each side of a service are divided among its variants."""

from collections.abc import Mapping

from penstock.core.observed.children import Observed
from penstock.core.spec.service import ServiceSpec

Mix = Mapping[str, int]
"""Replicas by variant; of the variant "" where a service has none."""


def mix_of(spec: ServiceSpec, observed: Observed, told: Mix, total: int) -> Mix:
    """What all of the traffic is to run on: what the scaler said, else what there is, else the first
    variant beside the minima of the others."""
    names = list(spec.placed)
    serving = observed.of_side(observed.stable)
    for known in (told, {name: deployment.replicas for name, deployment in serving.items()}):
        mix = {name: known.get(name, 0) for name in names}
        if sum(mix.values()):
            return mix
    mix = {variant.name: variant.min_replicas for variant in spec.variants} or {"": 0}
    mix[names[0]] += max(0, total - sum(mix.values()))
    return mix


def divided(replicas: int, mix: Mix) -> Mix:
    """So many replicas in the proportions of a mix, whole: of one number and one mix always the same, so
    that a canary and its control run on alike nodes. A mix of so many stays as it is."""
    total = sum(mix.values())
    if not total:
        return {name: replicas if i == 0 else 0 for i, name in enumerate(mix)}
    parts = {name: divmod(replicas * count, total) for name, count in mix.items()}
    left = replicas - sum(whole for whole, _ in parts.values())
    larger = sorted(parts, key=lambda name: -parts[name][1])[:left]
    return {name: whole + (name in larger) for name, (whole, _) in parts.items()}
