"""Builds a scaling rule from its name and its knobs as text: a published rule or the oracle."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.learned.capacity import EngineLimits, Mix, capacity
from penstock.core.scaling.variants.mixed import Variant
from penstock.sim.baselines.oracle import Oracle, oracle_of
from penstock.sim.baselines.registry import PUBLISHED, AnyRule, Knob, iteration_model, parse_knob
from penstock.sim.profile import Profile
from penstock.sim.request import Request
from penstock.sim.scenario import Service

# Parameters of a rule's factory that are no knobs.
GIVEN = ("profile", "service", "requests")


def oracle(
    service: Service, requests: Sequence[Request], share: float = 1.0, cut_s: float = 60.0
) -> Oracle:
    """Clairvoyant rule. share: used fraction of a replica's capacity. It does not know prefix-cache hits.

    requests: all arrivals, in order; empty for a closed loop.
    """
    engine = engine_profile(service.engine)
    model = iteration_model(engine)
    limits = EngineLimits(engine.kv_capacity_tokens, engine.max_sequences)
    demand = []
    for request in requests:
        mix = Mix(request.prompt_tokens, request.prompt_tokens, request.output_tokens)
        alone = capacity(model, mix, limits, service.objectives)
        demand.append((request.arrival_s, 1 / (share * alone.rate)))
    return oracle_of(demand, service.engine.start_up.median_s, cut_s)


def policies() -> dict[str, Callable[..., AnyRule]]:
    """Map each name to the rule's factory. Its parameters are the knobs, except those of GIVEN."""
    return {**{name: published.make for name, published in PUBLISHED.items()}, "oracle": oracle}


def knobs_of(name: str) -> dict[str, str]:
    """Map each knob of a rule to its default as text; empty if it has none."""
    defaults = defaults_of(name)
    return {
        p: "" if value is inspect.Parameter.empty else str(value) for p, value in defaults.items()
    }


def defaults_of(name: str) -> dict[str, Any]:
    """Map each knob of a rule to its default; `inspect.Parameter.empty` if it has none."""
    parameters = inspect.signature(policies()[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in GIVEN and p.default is not None}


def make(
    name: str, knobs: Mapping[str, str], service: Service, requests: Sequence[Request]
) -> AnyRule:
    """Build a rule. Raises ValueError for an unknown rule, an unknown knob, or a missing one.

    requests: all arrivals, for the oracle; empty for a closed loop.
    """
    values = parse(name, knobs)
    if name == "oracle":
        return policies()[name](service, requests, **values)
    rule = PUBLISHED[name].build(engine_profile(service.engine), **values)
    if isinstance(rule, ObjectivesRule) and len(service.offers) > 1:
        return replace(rule, variants=tuple(_variants(service)))
    return rule


def parse(name: str, knobs: Mapping[str, str]) -> dict[str, Knob]:
    """Parse the knobs of a rule. Raises ValueError for an unknown rule, an unknown knob, or a missing one."""
    if name not in (known := policies()):
        raise ValueError(f"no policy {name!r}; there are: {', '.join(sorted(known))}")
    defaults = knobs_of(name)
    if unknown := [knob for knob in knobs if knob not in defaults]:
        raise ValueError(f"policy {name} has no knob {unknown[0]!r}; it has: {', '.join(defaults)}")
    values = {knob: parse_knob(text) for knob, text in knobs.items()}
    if missing := [knob for knob, text in defaults.items() if not text and knob not in values]:
        raise ValueError(f"policy {name} needs the knob {', '.join(missing)}")
    return values


def _variants(service: Service) -> Iterator[Variant]:
    """Variants with the iteration model that `penstock calibrate` would measure."""
    for offer in service.offers:
        prior = iteration_model(engine_profile(service.engines[offer.name]))
        yield Variant(offer.name, prior, offer.price_per_hour, offer.least, offer.most)


def engine_profile(profile: Profile) -> EngineProfile:
    """Engine profile as rules use it. It assumes half a token budget as the context of a chunk."""
    times = profile.times
    return EngineProfile(
        base_s=times.fixed_s,
        prefill_token_s=times.prompt_token_s + times.pair_s * profile.max_num_batched_tokens / 2,
        sequence_s=times.sequence_s,
        kv_token_s=times.kv_token_s,
        max_batched_tokens=profile.max_num_batched_tokens,
        max_sequences=profile.max_num_seqs,
        kv_capacity_tokens=profile.kv_tokens,
    )
