"""Runs the sizing rule: holds its state for each service, and stores, restores and records it."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from penstock.controller.failures import Failures
from penstock.controller.memory import Key, Memory
from penstock.controller.recorder import Recorder
from penstock.core.scaling.by_objectives.mixed import Variant
from penstock.core.scaling.by_objectives.priors import prior
from penstock.core.scaling.by_objectives.record import Learned
from penstock.core.scaling.by_objectives.rule import Sizing
from penstock.core.scaling.by_objectives.state import SizingState
from penstock.core.scaling.recording import Settings, Tick
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Observation
from penstock.core.spec.service import ServiceSpec

NO_LIMITS: Mapping[str, int] = MappingProxyType({})


class Sizer:
    """Sizes services with objectives."""

    def __init__(self, memory: Memory, recorder: Recorder, failures: Failures) -> None:
        self._memory = memory
        self._failures = failures
        self._recorder = recorder
        self._states: dict[Key, tuple[str, SizingState]] = {}  # with the service's uid

    def only(self, alive: Collection[Key]) -> None:
        """Forget all services but these."""
        self._states = {key: state for key, state in self._states.items() if key in alive}
        self._memory.only(alive)

    async def decide(
        self, service: ServiceSpec, seen: Observation, most: Mapping[str, int] = NO_LIMITS
    ) -> Decision:
        """Decide on one service. most: replicas by variant that the quotas allow. Raises KubeError if
        the learned state cannot be read yet."""
        settings = settings_of(service, most)
        state = await self._state(service, settings.rule, seen.now_s)
        decision, after = settings.rule.decide(settings.objectives, settings.bounds, seen, state)
        self._states[service.key] = (service.uid, after)
        # The decision stands even if it cannot be recorded or the learned state cannot be stored.
        with self._failures.contained("recorder", "/".join(service.key)):
            self._recorder.tell(service.key, Tick(settings, state, seen, decision))
        with self._failures.contained("memory", "/".join(service.key)):
            is_idle = after.traffic.arrivals == 0
            await self._memory.keep(service, Learned.of(after), seen.now_s, is_idle=is_idle)
        return decision

    async def _state(self, service: ServiceSpec, rule: Sizing, now_s: float) -> SizingState:
        uid, state = self._states.get(service.key, ("", None))
        if state is not None and uid == service.uid:
            return state
        learned = await self._memory.recall(service, now_s)
        fresh = rule.initial()
        return fresh if learned is None else learned.restored(fresh, now_s)


def settings_of(service: ServiceSpec, most: Mapping[str, int] = NO_LIMITS) -> Settings:
    """Settings of the sizing rule for a service with objectives. most: as in `decide`."""
    scaling = service.scaling
    assert scaling.objectives is not None
    rule = Sizing(
        prior=prior(next(iter(service.placed.values())).accelerator),
        max_num_seqs=service.max_num_seqs,
        calm_s=scaling.scale_down_delay_s,
        variants=tuple(
            Variant(
                each.name,
                prior(each.accelerator, each.node_selector),
                each.price_per_hour,
                each.min_replicas,
                each.max_replicas,
            )
            for each in service.variants
        ),
    ).limited(most)
    bounds = Bounds(scaling.min_replicas, scaling.max_replicas)
    return Settings(rule, scaling.objectives, bounds, service.max_num_batched_tokens)
