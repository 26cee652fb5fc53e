"""Decides on services with objectives: runs the rule, and restores, stores and records its state."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from penstock.clients.kubernetes.informer import Key
from penstock.controller.http.recorder import Recorder
from penstock.controller.process.failures import Failures
from penstock.controller.scaling.learned_state import LearnedStateStore
from penstock.core.scaling.by_objectives.record import Learned
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.by_objectives.tick import Settings, Tick
from penstock.core.scaling.idle import IdleDecision
from penstock.core.scaling.learned.priors import prior
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Observation
from penstock.core.scaling.variants.mixed import Variant
from penstock.core.spec.service import ServiceSpec

# Sequences and tokens of a step, by device, until an engine reports them: the defaults of Penstock's engine
# for CPUs and for GPUs of less than 70 GiB. vLLM reports none, and has the same for such GPUs.
UNREPORTED_LIMITS = {"cpu": (64, 512), "cuda": (256, 2048)}

NO_LIMITS: Mapping[str, int] = MappingProxyType({})


class ObjectiveScaler:
    """Decides how many replicas a service with objectives needs. Holds the rule's state by service."""

    def __init__(self, learned: LearnedStateStore, recorder: Recorder, failures: Failures) -> None:
        self._learned = learned
        self._failures = failures
        self._recorder = recorder
        self._states: dict[Key, tuple[str, ObjectivesState]] = {}  # with the service's uid

    def prune(self, alive: Collection[Key]) -> None:
        """Drop the state of all services that are not in `alive`."""
        self._states = {key: state for key, state in self._states.items() if key in alive}
        self._learned.prune(alive)

    async def decide(
        self,
        service: ServiceSpec,
        observation: Observation,
        max_by_variant: Mapping[str, int] = NO_LIMITS,
        idle: IdleDecision | None = None,
    ) -> Decision:
        """Decide on one service.

        max_by_variant: replicas of each variant that the quotas allow. idle: whether it is at zero; None if
        it never is. Raises KubeError if the learned state cannot be read yet.
        """
        settings = settings_of(service, max_by_variant, idle)
        state = await self._state(service, settings.rule, observation.now_s)
        decision, after = settings.rule.decide(
            settings.objectives, settings.bounds, observation, state
        )
        self._states[service.key] = (service.uid, after)
        # The decision stands even if it cannot be recorded or the learned state cannot be stored.
        with self._failures.isolate_errors("recorder", *service.key):
            self._recorder.publish(service.key, Tick(settings, state, observation, decision))
        with self._failures.isolate_errors("memory", *service.key):
            is_idle = after.traffic.arrivals == 0
            await self._learned.save(service, Learned.of(after), observation.now_s, is_idle=is_idle)
        return decision

    async def _state(
        self, service: ServiceSpec, rule: ObjectivesRule, now_s: float
    ) -> ObjectivesState:
        """Return the rule's state for this service, restored from its ConfigMap the first time."""
        uid, state = self._states.get(service.key, ("", None))
        if state is not None and uid == service.uid:
            return state
        learned = await self._learned.load(service, now_s)
        fresh = rule.initial()
        return fresh if learned is None else learned.restored(fresh)


def settings_of(
    service: ServiceSpec,
    max_by_variant: Mapping[str, int] = NO_LIMITS,
    idle: IdleDecision | None = None,
) -> Settings:
    """Settings of the rule for a service with objectives. The other arguments are those of `decide`."""
    scaling = service.scaling
    assert scaling.objectives is not None
    resources = next(iter(service.placed.values())).resources
    max_num_seqs, max_num_batched_tokens = UNREPORTED_LIMITS[resources.device]
    rule = ObjectivesRule(
        prior=prior(resources.accelerator),
        max_num_seqs=service.settings.get("engine.maxNumSeqs", max_num_seqs),
        max_output_tokens=service.settings.get("engine.generation.defaults.maxTokens"),
        calm_s=scaling.scale_down_delay_s,
        variants=tuple(
            Variant(
                each.name,
                prior(each.resources.accelerator, each.node_selector),
                each.price_per_hour,
                each.min_replicas,
                each.max_replicas,
            )
            for each in service.variants
        ),
    ).limited(max_by_variant)
    bounds = Bounds.of(scaling, idle)
    return Settings(
        rule,
        scaling.objectives,
        bounds,
        service.settings.get("engine.maxNumBatchedTokens", max_num_batched_tokens),
    )
