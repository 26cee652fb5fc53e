"""Need of a service that runs on several variants, and the learned state of each.

    engines of a variant -> iteration time, start-up time -> replicas of this variant alone for the need
      -> share of the need that one replica covers -> cheapest mix

The need is in replicas of the first variant by its prior. This unit stays the same while models are fitted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.core.engine_time.iteration import TYPICAL, Fit, IterationModel
from penstock.core.scaling.learned.capacity import Mix
from penstock.core.scaling.learned.footprint import Footprint
from penstock.core.scaling.learned.startup import StartUp
from penstock.core.scaling.learned.traffic import Readings
from penstock.core.scaling.learned.watch import Watch
from penstock.core.scaling.rule import Bounds, Decision, DecisionCode, TrailEntry
from penstock.core.scaling.signals import Observation
from penstock.core.scaling.variants.cheapest import (
    Choice,
    Counts,
    Offer,
    add_towards,
    bounded_counts,
    choose,
    covers,
    price,
    remove_one,
)

# Largest share of a need that one replica covers, so that a need of zero has finite shares.
MOST_SHARE = 1e6


@dataclass(frozen=True, slots=True)
class Variant:
    """Kind of replica. prior: of its iteration time. price_per_hour: in one currency for all variants."""

    name: str
    prior: IterationModel
    price_per_hour: float
    min_replicas: int
    max_replicas: int

    def limited(self, most: Mapping[str, int]) -> "Variant":
        """The variant within a limit on its replicas, if `most` has one. most: limits by name."""
        limit = min(self.max_replicas, most.get(self.name, self.max_replicas))
        return replace(self, min_replicas=min(self.min_replicas, limit), max_replicas=limit)


@dataclass(frozen=True, slots=True)
class LearnedVariant:
    """Learned state of one variant. kv_tokens: smallest KV cache of its engines; None: none has run yet."""

    watch: Watch
    startup: StartUp
    kv_tokens: int | None = None

    @classmethod
    def initial(cls, variant: Variant, startup_s: float) -> "LearnedVariant":
        """The state before any of its engines ran."""
        return cls(Watch(Fit.around(variant.prior)), StartUp(startup_s))

    @property
    def fit(self) -> Fit:
        return self.watch.fit

    def stored(self) -> "LearnedVariant":
        """The part that is stored."""
        return replace(self, watch=self.watch.stored())

    def updated(self, then: Readings, seen: Observation, prompt_tokens: float) -> "LearnedVariant":
        """Add an observation of this variant's pods. then: the readings before it.

        prompt_tokens: of the mean request.
        """
        held = [reading.kv_capacity_tokens for reading in seen.readings]
        return LearnedVariant(
            self.watch.updated(then.pairs(seen), prompt_tokens),
            self.startup.updated(seen.pods),
            min(held, default=self.kv_tokens),
        )


def iteration_models(
    variants: tuple[Variant, ...], known: Mapping[str, LearnedVariant]
) -> Iterator[IterationModel]:
    """The fitted model of each variant.

    If it has not run yet: its prior, times the mean ratio of fitted to prior times of the others.
    """
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
    """Turns a need into the cheapest mix of variants. `replicas` chooses the mix; other methods read it."""

    def __init__(
        self,
        variants: tuple[Variant, ...],
        footprints: tuple[Footprint, ...],
        unit: Footprint,
        counts: Mapping[str, int],
        bounds: Bounds,
        mix: Mix,
    ) -> None:
        """Make it for one decision.

        footprints: of the mix of requests on a replica of each variant. unit: on the kind of replica that
        needs are in. counts: provisioned replicas by variant. bounds: of all variants together. mix: mean
        request.
        """
        self._variants, self._footprints, self._mix = variants, footprints, mix
        # Variants are compared by the mean request, because the demand of the last seconds soon changes.
        in_units = max(1e-9, unit.request_replicas(mix))
        self._scales = tuple(each.request_replicas(mix) / in_units for each in footprints)
        self._replicas = tuple(counts.get(variant.name, 0) for variant in variants)
        self._bounds = bounds.min_replicas, bounds.max_replicas
        self._offers: tuple[Offer, ...] = ()
        self._choice = Choice((), "Keep", ())

    @property
    def capacity_note(self) -> str:
        """Capacity and price of a replica of each variant, for the trail."""
        pairs = zip(self._variants, self._footprints, strict=True)
        return "; ".join(
            f"{variant.name}, at most {variant.max_replicas}, each {variant.price_per_hour:g} an hour: "
            f"{footprint.note(self._mix)}"
            for variant, footprint in pairs
        )

    @property
    def first(self) -> tuple[str, float]:
        """The first variant, and its replicas for one of the unit of needs, which is its prior."""
        return self._variants[0].name, self._scales[0]

    def ready_units(self, seen: Observation) -> float:
        """The ready replicas of all variants, in the unit of needs."""
        pairs = zip(self._variants, self._scales, strict=True)
        return sum(len(seen.of_variant(v.name).ready) / max(1e-9, scale) for v, scale in pairs)

    @property
    def unattainable(self) -> str:
        """The objectives that an idle engine of each variant misses, in words; empty if one keeps them."""
        pairs = list(zip(self._variants, self._footprints, strict=True))
        if not all(footprint.unattainable for _, footprint in pairs):
            return ""
        return "; ".join(
            f"{variant.name}: {footprint.unattainable}" for variant, footprint in pairs
        )

    def replicas(self, need: float) -> tuple[int, str]:
        """Choose the mix that covers a need: the number of all its replicas, and the mix in words."""
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
        return sum(counts), self._note(counts)

    def replicas_with_swap(self) -> int:
        """Replicas of the last mix with those that are to replace others; 0 if it is no swap."""
        return self._choice.total if self._choice.move == "Swap" else 0

    @property
    def swap_note(self) -> str:
        mix = self._note(self._choice.target)
        return f"{mix} would be enough; new replicas start before others are removed"

    def decided(self, decision: Decision) -> Decision:
        """Add the mix to a decision. Limits of variants may make it smaller than a number that is held."""
        counts = self.counts(decision.desired)
        total = sum(counts)
        if code := self._code_at_limit(decision, counts):
            reason = f"{decision.reason}; bounded by the limits of the variants"
            if total == self._bounds[1]:
                reason = f"{decision.reason}; bounded by maxReplicas {total}"
            decision = replace(decision, code=code, reason=reason)
        entry = TrailEntry("variants", total, self._note(counts))
        names = (variant.name for variant in self._variants)
        return replace(
            decision,
            desired=total,
            trail=(*decision.trail, entry),
            by_variant=dict(zip(names, counts, strict=True)),
        )

    def _code_at_limit(self, decision: Decision, counts: Counts) -> DecisionCode | None:
        """Code of a decision to hold the number that limits prevent or make too small; None for another."""
        if decision.desired != sum(self._replicas):
            return None
        if sum(counts) < decision.desired:
            return "Bounded"
        is_largest = counts == self._choice.counts and not covers(self._offers, counts)
        return "AtMaximum" if is_largest and decision.code == "Steady" else None

    def counts(self, total: int) -> Counts:
        """Counts by variant for about `total` replicas, on the way to the chosen mix.

        If they are fewer than the present ones, replicas with the highest unit price are removed first, down
        to the chosen mix.
        """
        least, most = self._bounds
        bounded = bounded_counts(self._offers, least, most)
        is_enough = covers(self._offers, bounded)
        if self._choice.move == "Swap" and total == self._choice.total:
            return self._choice.counts
        if total >= sum(bounded):
            within_total = max(least, min(most, total))
            grown = add_towards(self._offers, bounded, self._choice.counts, within_total)
            return bounded if is_enough else grown
        target = self._choice.counts
        while sum(bounded) > total:
            target = target if any(map(int.__gt__, bounded, target)) else (0,) * len(bounded)
            bounded = remove_one(self._offers, bounded, target)
        return bounded

    def _note(self, counts: Counts) -> str:
        """The mix and its price, in words."""
        parts = [
            f"{n} {variant.name}" for n, variant in zip(counts, self._variants, strict=True) if n
        ]
        cost = price(self._offers, counts)
        return f"{' + '.join(parts) or 'none'} for {cost:.4g} an hour"
