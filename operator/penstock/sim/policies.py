"""Rules by name, with their knobs from text: the published ones, and the one that knows the future."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.scaling.by_objectives.capacity import Mix, Room, capacity
from penstock.core.scaling.by_objectives.iteration import IterationModel
from penstock.core.scaling.by_objectives.mixed import Variant
from penstock.core.scaling.by_objectives.rule import Sizing
from penstock.core.scaling.by_objectives.variants import Offer
from penstock.core.scaling.engine_profile import EngineProfile
from penstock.core.scaling.rule import Bounds
from penstock.core.spec.objectives import Objectives
from penstock.sim.baselines.oracle import Oracle, oracle_of
from penstock.sim.baselines.registry import PUBLISHED, AnyRule, Knob
from penstock.sim.profile import Profile
from penstock.sim.request import Request


@dataclass(frozen=True, slots=True)
class Future:
    """What a clairvoyant rule may know. requests: all arrivals, in order; none of a closed loop.
    profiles, offers: of variants, for whoever chooses among them."""

    requests: Sequence[Request]
    profile: Profile
    objectives: Objectives
    bounds: Bounds
    duration_s: float
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    offers: tuple[Offer, ...] = ()


def oracle(future: Future, share: float = 1.0, cut_s: float = 60.0) -> Oracle:
    """share: of what a replica can take, that is used. Which prompts will be cached it does not know."""
    told = engine_profile(future.profile)
    model = _model(told)
    room = Room(told.kv_capacity_tokens, told.max_sequences)
    demand = []
    for request in future.requests:
        mix = Mix(request.prompt_tokens, request.prompt_tokens, request.output_tokens)
        alone = capacity(model, mix, room, future.objectives)
        demand.append((request.arrival_s, 1 / (share * alone.rate)))
    return oracle_of(demand, future.profile.start_up.median_s, cut_s)


def policies() -> dict[str, Callable[..., AnyRule]]:
    """Name -> what makes the rule; its parameters are the knobs, but for `profile` and `future`."""
    return {**{name: published.make for name, published in PUBLISHED.items()}, "oracle": oracle}


def knobs_of(name: str) -> dict[str, str]:
    """Name -> default, as text; empty when there is none."""
    defaults = defaults_of(name)
    return {
        p: "" if value is inspect.Parameter.empty else str(value) for p, value in defaults.items()
    }


def defaults_of(name: str) -> dict[str, Any]:
    """Knob -> default; `inspect.Parameter.empty` when there is none."""
    parameters = inspect.signature(policies()[name]).parameters.values()
    return {
        p.name: p.default
        for p in parameters
        if p.name not in ("profile", "future") and p.default is not None
    }


def make(name: str, knobs: Mapping[str, str], future: Future) -> AnyRule:
    """Raises ValueError when there is no such rule, or it has no such knob, or lacks one."""
    if name not in (known := policies()):
        raise ValueError(f"no policy {name!r}; there are: {', '.join(sorted(known))}")
    defaults = knobs_of(name)
    values = {knob: _parsed(name, defaults, knob, text) for knob, text in knobs.items()}
    if missing := [knob for knob, text in defaults.items() if not text and knob not in values]:
        raise ValueError(f"policy {name} needs the knob {', '.join(missing)}")
    if name == "oracle":
        return known[name](future, **values)
    rule = PUBLISHED[name].build(engine_profile(future.profile), **values)
    if isinstance(rule, Sizing) and len(future.offers) > 1:
        return replace(rule, variants=tuple(_variants(future)))
    return rule


def _variants(future: Future) -> Iterator[Variant]:
    """As `penstock calibrate` measures each."""
    for offer in future.offers:
        prior = _model(engine_profile(future.profiles[offer.name]))
        yield Variant(offer.name, prior, offer.price_per_hour, offer.least, offer.most)


def _model(told: EngineProfile) -> IterationModel:
    return IterationModel(told.base_s, told.prefill_token_s, told.sequence_s, told.kv_token_s)


def engine_profile(profile: Profile) -> EngineProfile:
    """What a rule is told of an engine. A chunk's context is taken for half a batch of tokens."""
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


def _parsed(name: str, defaults: Mapping[str, str], knob: str, text: str) -> Knob:
    if knob not in defaults:
        raise ValueError(f"policy {name} has no knob {knob!r}; it has: {', '.join(defaults)}")
    if text in ("true", "false"):
        return text == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
