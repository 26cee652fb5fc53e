"""Decides on services without objectives: runs the KV rule, and holds and records its state."""

from collections.abc import Collection

from penstock.clients.kubernetes.informer import Key
from penstock.controller.http.recorder import Recorder
from penstock.controller.process.failures import Failures
from penstock.core.scaling.by_kv.rule import KvRule
from penstock.core.scaling.by_kv.tick import KvSettings, KvTick
from penstock.core.scaling.delays import ScaleDownDelay
from penstock.core.scaling.idle import IdleDecision
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Observation
from penstock.core.spec.service import ServiceSpec


class KvScaler:
    """Decides how many replicas a service without objectives needs. Holds the rule's state by service."""

    def __init__(self, recorder: Recorder, failures: Failures) -> None:
        self._recorder = recorder
        self._failures = failures
        self._states: dict[Key, ScaleDownDelay] = {}

    def prune(self, alive: Collection[Key]) -> None:
        """Drop the state of all services that are not in `alive`."""
        self._states = {key: state for key, state in self._states.items() if key in alive}

    def decide(
        self, service: ServiceSpec, observation: Observation, idle: IdleDecision | None = None
    ) -> Decision:
        """Decide on one service, and publish the decision to its listeners.

        idle: whether it is at zero; None if it never is.
        """
        settings = settings_of(service, idle)
        state = self._states.get(service.key, settings.rule.initial())
        decision, after = settings.rule.decide(None, settings.bounds, observation, state)
        self._states[service.key] = after
        # The decision stands even if it cannot be recorded.
        with self._failures.isolate_errors("recorder", *service.key):
            self._recorder.publish(service.key, KvTick(settings, state, observation, decision))
        return decision


def settings_of(service: ServiceSpec, idle: IdleDecision | None = None) -> KvSettings:
    """Settings of the KV rule for a service without objectives. idle: as of `decide`."""
    scaling = service.scaling
    rule = KvRule(
        scaling.kv_utilization_target, scaling.queue_length_target, scaling.scale_down_delay_s
    )
    return KvSettings(rule, Bounds.of(scaling, idle))
