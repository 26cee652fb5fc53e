"""The need of a service that runs on several variants, and what is learned of each.

    each variant's own engines -> its iteration time and its start-up -> its replicas for the need, alone
      -> the share of the need that one replica takes -> the cheapest mix

The need is in replicas of the first variant by its prior, a unit that stays while engines are learned.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.core.scaling.learned.capacity import Mix
from penstock.core.scaling.learned.footprint import Demand, Footprint
from penstock.core.scaling.learned.iteration import TYPICAL, Fit, IterationModel
from penstock.core.scaling.learned.startup import StartUp
from penstock.core.scaling.learned.traffic import Readings
from penstock.core.scaling.learned.watch import Watch
from penstock.core.scaling.rule import Bounds, Decision, TrailEntry
from penstock.core.scaling.signals import Observation
from penstock.core.scaling.variants.cheapest import (
    Choice,
    Counts,
    Offer,
    choose,
    fewer,
    holds,
    price,
    taken,
    within,
)

# No replica is so strong that it takes more of a need than this; of no need at all it takes all.
MOST_SHARE = 1e6


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of engine that a service may have. prior: of its iteration time. price_per_hour: of one
    replica, in any currency that all share."""

    name: str
    prior: IterationModel
    price_per_hour: float
    min_replicas: int
    max_replicas: int

    def limited(self, most: Mapping[str, int]) -> "Variant":
        limit = min(self.max_replicas, most.get(self.name, self.max_replicas))
        return replace(self, min_replicas=min(self.min_replicas, limit), max_replicas=limit)


@dataclass(frozen=True, slots=True)
class Known:
    """What was learned of the engines of one variant. kv_tokens: the least that one of them holds."""

    watch: Watch
    startup: StartUp
    kv_tokens: int | None = None

    @classmethod
    def initial(cls, variant: Variant, startup_s: float) -> "Known":
        return cls(Watch(Fit.around(variant.prior)), StartUp(startup_s))

    @property
    def fit(self) -> Fit:
        return self.watch.fit

    def kept(self) -> "Known":
        """As it is written down."""
        return replace(self, watch=self.watch.kept())

    def after(self, then: Readings, seen: Observation, prompt_tokens: float) -> "Known":
        """seen: of this variant's pods."""
        held = [reading.kv_capacity_tokens for reading in seen.readings]
        return Known(
            self.watch.after(then.pairs(seen), prompt_tokens),
            self.startup.after(seen.pods),
            min(held, default=self.kv_tokens),
        )


def believed(variants: tuple[Variant, ...], known: Mapping[str, Known]) -> Iterator[IterationModel]:
    """Of each variant: what was fitted; of one that never ran its prior, as wrong as the others' were."""
    factors = [
        known[variant.name].fit.model.time_s(*TYPICAL) / variant.prior.time_s(*TYPICAL)
        for variant in variants
        if known[variant.name].fit.windows
    ]
    factor = sum(factors) / len(factors) if factors else 1.0
    for variant in variants:
        fit = known[variant.name].fit
        yield fit.model if fit.windows else variant.prior.times(factor)


class MixedNeed:
    """The cheapest mix of variants that holds a need."""

    def __init__(
        self,
        variants: tuple[Variant, ...],
        footprints: tuple[Footprint, ...],
        unit: Footprint,
        counts: Mapping[str, int],
        bounds: Bounds,
        mix: Mix,
    ) -> None:
        """footprints: of the mix of requests on a replica of each variant. unit: on the replicas that needs
        are in. counts: provisioned replicas. bounds: of all variants."""
        self._variants, self._footprints, self._mix = variants, footprints, mix
        # Compared by the mean request: prompts and answers of the last seconds say less of the next ones.
        mean = Demand(mix.prompt_tokens, answers=1.0)
        in_units = max(1e-9, unit.replicas(mean))
        self._scales = tuple(each.replicas(mean) / in_units for each in footprints)
        self._replicas = tuple(counts.get(variant.name, 0) for variant in variants)
        self._bounds = bounds.min_replicas, bounds.max_replicas
        self._offers: tuple[Offer, ...] = ()
        self._choice = Choice((), "Keep", ())

    @property
    def capacity_note(self) -> str:
        pairs = zip(self._variants, self._footprints, strict=True)
        return "; ".join(
            f"{variant.name}, at most {variant.max_replicas}, each {variant.price_per_hour:g} an hour: "
            f"{footprint.note(self._mix)}"
            for variant, footprint in pairs
        )

    def replicas(self, need: float) -> tuple[int, str]:
        """Replicas of all variants that hold a need, and the mix in words."""
        self._offers = tuple(
            Offer(
                name=variant.name,
                share=min(MOST_SHARE, 1 / max(need * scale, 1 / MOST_SHARE)),
                price_per_hour=variant.price_per_hour,
                replicas=replicas,
                least=variant.min_replicas,
                most=variant.max_replicas,
            )
            for variant, scale, replicas in zip(
                self._variants, self._scales, self._replicas, strict=True
            )
        )
        choice = self._choice = choose(self._offers, *self._bounds)
        counts = self._replicas if choice.move == "Swap" else choice.counts
        return sum(counts), self.told(counts)

    def swapped(self) -> int:
        """Of the last question: replicas with those that are to replace others; 0 of no swap."""
        return self._choice.total if self._choice.move == "Swap" else 0

    @property
    def why_swapped(self) -> str:
        return f"{self.told(self._choice.target)} hold it as well: they come before the others go"

    def decided(self, decision: Decision) -> Decision:
        """With the mix."""
        counts = self.counts(decision.desired)
        total = sum(counts)
        entry = TrailEntry("variants", total, self.told(counts))
        names = (variant.name for variant in self._variants)
        return replace(
            decision,
            desired=total,
            trail=(*decision.trail, entry),
            by_variant=dict(zip(names, counts, strict=True)),
        )

    def counts(self, total: int) -> Counts:
        """About so many replicas of all, on the way to the mix of the last question.

        More than hold it, as a queue asks for them: of what takes so much more. Fewer: without the
        dearest that the mix can do without.
        """
        least, most = self._bounds
        bounded = within(self._offers, least, most)
        is_held = holds(self._offers, bounded)
        if self._choice.move == "Swap" and total == self._choice.total:
            return self._choice.counts
        if is_held and total > sum(bounded) > 0:
            need = taken(self._offers, bounded) * total / sum(bounded)
            return choose(self._offers, least, most, need).counts
        if total >= sum(bounded):
            within_total = max(least, min(most, total))
            return bounded if is_held else choose(self._offers, least, within_total).counts
        target = self._choice.counts
        while sum(bounded) > total:
            target = target if any(map(int.__gt__, bounded, target)) else (0,) * len(bounded)
            bounded = fewer(self._offers, bounded, target)
        return bounded

    def told(self, counts: Counts) -> str:
        parts = [
            f"{n} {variant.name}" for n, variant in zip(counts, self._variants, strict=True) if n
        ]
        cost = price(self._offers, counts)
        return f"{' + '.join(parts) or 'none'} for {cost:.4g} an hour"
