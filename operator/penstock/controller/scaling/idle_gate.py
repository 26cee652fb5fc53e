"""Runs the rule of scale to zero, and holds its state by service."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from penstock.clients.kubernetes.informer import Key
from penstock.controller.scaling.observer import Observer
from penstock.controller.scaling.scale_targets import ScaleTarget
from penstock.core.rollout.at_zero import is_accepted_at_zero
from penstock.core.scaling.idle import (
    AdapterWork,
    GatewayDemand,
    IdleDecision,
    IdleInputs,
    IdleRule,
    IdleState,
    has_new_requests,
)
from penstock.core.scaling.learned.startup import StartUp
from penstock.core.scaling.report import ScalingReport
from penstock.core.scaling.signals import Observation

NO_ADAPTER_WORK = AdapterWork()
NO_DEMAND: Mapping[str, GatewayDemand] = MappingProxyType({})


class IdleGate:
    """Decides which services are at zero. adapter_work: returns that of a service."""

    def __init__(
        self,
        observer: Observer,
        adapter_work: Callable[[Key], AdapterWork] = lambda _: NO_ADAPTER_WORK,
    ) -> None:
        self._observer = observer
        self._adapter_work = adapter_work
        self._states: dict[Key, IdleState] = {}

    def prune(self, alive: Collection[Key]) -> None:
        """Drop the state of all services that are not in `alive`."""
        self._states = {key: state for key, state in self._states.items() if key in alive}

    def startup_s(self, key: Key) -> int | None:
        """Return how long a first replica of the service takes; None if it is never at zero."""
        state = self._states.get(key)
        return None if state is None else round(state.startup.expected_s)

    def has_new_requests(self, key: Key, gateway: str, demand: GatewayDemand) -> bool:
        """Whether a gateway has requests of the service, or had some since the last decision."""
        state = self._states.get(key)
        return state is not None and has_new_requests(state, gateway, demand)

    def decide(
        self,
        target: ScaleTarget,
        seen: Observation,
        last: ScalingReport | None,
        newer: Mapping[str, GatewayDemand] = NO_DEMAND,
    ) -> IdleDecision | None:
        """Decide on one service; None if it is never at zero.

        last: the last decision, perhaps stored. newer: requests at gateways that were read after the last
        scrape.
        """
        key, scaling = target.service.key, target.service.scaling
        if scaling.min_replicas:
            self._states.pop(key, None)
            return None
        work = self._adapter_work(key)
        needs_engine = not is_accepted_at_zero(target.service.rollout, seen.provisioned)
        inputs = IdleInputs(
            seen,
            {**self._observer.demand(key), **newer},
            is_rolling_out=(target.is_rolling_out and needs_engine) or work.is_rolling_out,
            is_loading=work.is_loading,
        )
        state = self._states.get(key) or _first_state(last)
        decision, self._states[key] = IdleRule(scaling.idle_after_s).decide(inputs, state)
        return decision


def _first_state(last: ScalingReport | None) -> IdleState:
    """The first state in a new leader, with the start-up time that the status has."""
    if last is None or last.startup_s is None:
        return IdleState()
    return IdleState(StartUp(float(last.startup_s)))
