"""Scale to zero: when a service without requests loses its last replica, and when it gets one again.

    a request waits or runs, or came since the last decision; a rollout, or a load of an adapter -> busy
    busy, no data, or idle for less than idle_after_s -> at least one replica
    else                                             -> none, until it is busy again

A gateway that does not report is no data while clients may wait for its answer: as long as it is ready, and
then for as long as it may hold a request. This rule alone decides about zero; the other rules choose between
one replica and more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.core.routing.hold import HOLD_S
from penstock.core.scaling.learned.startup import PRIOR_STARTUP_S, StartUp, is_any_starting
from penstock.core.scaling.signals import STALE_S, Observation
from penstock.core.scaling.zero_totals import NO_TOTALS, ZeroTotals

# Hold: the service has been idle for long enough, but a gateway or an engine does not report its requests.
IdleAction = Literal["Keep", "Hold", "ScaleToZero", "StayAtZero", "Wake"]


@dataclass(frozen=True, slots=True)
class GatewayDemand:
    """Requests of a service at one gateway.

    started_s: when the gateway's process started. arrivals: requests since then. num_open: those that wait
    or run.
    """

    started_s: float
    arrivals: int
    num_open: int


@dataclass(frozen=True, slots=True)
class SilentGateway:
    """A gateway that did not report.

    unready_s: time since Services routed clients to it; None: it is ready, and may get requests. hold_s: the
    longest time for which it holds a request.
    """

    unready_s: float | None = None
    hold_s: float = HOLD_S

    @property
    def may_hold(self) -> bool:
        """Whether it may have a request that a client still waits for."""
        return self.unready_s is None or self.unready_s < self.hold_s


GatewayState = GatewayDemand | SilentGateway


@dataclass(frozen=True, slots=True)
class AdapterWork:
    """Rollouts and loads of a service's adapters, which need its engines even if no request waits."""

    is_rolling_out: bool = False
    is_loading: bool = False


@dataclass(frozen=True, slots=True)
class IdleInputs:
    """The inputs of a decision about zero, at seen.now_s.

    gateways: by pod. is_rolling_out: whether a revision of the service or of one of its adapters is rolled
    out, and engines are needed for it. is_loading: whether an engine loads an adapter.
    """

    seen: Observation
    gateways: Mapping[str, GatewayState]
    is_rolling_out: bool = False
    is_loading: bool = False


@dataclass(frozen=True, slots=True)
class IdleDecision:
    """Whether a service has replicas. reason: a sentence. startup_s: how long a first replica takes.

    totals: what zero has saved and cost so far.
    """

    action: IdleAction
    reason: str
    startup_s: int
    totals: ZeroTotals = NO_TOTALS

    @property
    def is_zero(self) -> bool:
        return self.action in ("ScaleToZero", "StayAtZero")


@dataclass(frozen=True, slots=True)
class IdleState:
    """The rule's memory of a service.

    busy_s: when it was busy last; None before the first decision. gateways: the last report of each.
    at_s: time of the last decision. is_zero: whether it found no replica.
    """

    startup: StartUp = field(default_factory=lambda: StartUp(PRIOR_STARTUP_S))
    busy_s: float | None = None
    gateways: Mapping[str, GatewayDemand] = field(default_factory=dict)
    at_s: float = 0.0
    is_zero: bool = False
    totals: ZeroTotals = NO_TOTALS

    def totals_at(self, inputs: IdleInputs, startup_s: float) -> ZeroTotals:
        """The totals with the time since the last decision. startup_s: of a first replica.

        A replica that a rollout starts, such as the first one of a new service, makes no request wait.
        """
        seen = inputs.seen
        if self.busy_s is None:
            return self.totals
        totals = self.totals.with_time(seen.now_s - self.at_s, is_zero=self.is_zero)
        is_woken = self.is_zero and seen.provisioned > 0 and not inputs.is_rolling_out
        return totals.woken(startup_s) if is_woken else totals


@dataclass(frozen=True, slots=True)
class IdleRule:
    """Scales a service to zero when it has been idle for idle_after_s, and wakes it for a request."""

    idle_after_s: float

    def decide(self, inputs: IdleInputs, state: IdleState) -> tuple[IdleDecision, IdleState]:
        """Decide at seen.now_s. Returns the decision and the next state."""
        inputs = replace(inputs, seen=inputs.seen.without_stale(STALE_S))
        seen, startup = inputs.seen, state.startup.updated(inputs.seen.pods)
        cause = next(_causes(inputs, state), None)
        is_first, is_zero = state.busy_s is None, seen.provisioned == 0
        if cause is None and not is_zero and is_any_starting(seen, startup.expected_s):
            cause = "an engine is starting"
        busy_s = seen.now_s if cause is not None or state.busy_s is None else state.busy_s
        action, reason = self._act(inputs, cause, seen.now_s - busy_s, is_first=is_first)
        startup_s = round(startup.expected_s)
        if action == "ScaleToZero":
            reason = f"{reason}; the next request waits about {startup_s} s for an engine"
        if action == "Wake":
            reason = f"{reason}; an engine is expected in {startup_s} s"
        gateways = {
            name: known
            for name, gateway in inputs.gateways.items()
            if (known := _last_report(gateway, state.gateways.get(name))) is not None
        }
        totals = state.totals_at(inputs, startup.expected_s)
        after = IdleState(startup, busy_s, gateways, seen.now_s, is_zero, totals)
        return IdleDecision(action, reason, startup_s, totals), after

    def _act(
        self, inputs: IdleInputs, cause: str | None, idle_s: float, *, is_first: bool
    ) -> tuple[IdleAction, str]:
        """The action and its reason. cause: why the service is busy; None if it is not."""
        if not inputs.seen.provisioned:
            return ("Wake", cause) if cause is not None else ("StayAtZero", "no request waits")
        if cause is not None:
            return "Keep", cause
        if is_first:
            return "Keep", "requests are watched from now on"
        if (unknown := _missing(inputs)) is not None:
            return "Keep" if idle_s < self.idle_after_s else "Hold", unknown
        if idle_s < self.idle_after_s:
            return "Keep", f"idle for {idle_s:.0f} of {self.idle_after_s:.0f} s"
        return "ScaleToZero", f"no request came for {self.idle_after_s:.0f} s"


def has_new_requests(state: IdleState, gateway: str, demand: GatewayDemand) -> bool:
    """Whether a gateway has requests, or had some since the last decision. state: after that decision."""
    others = {name: last for name, last in state.gateways.items() if name != gateway}
    return bool(demand.num_open) or _has_arrivals({**others, gateway: demand}, state.gateways)


def _causes(inputs: IdleInputs, state: IdleState) -> Iterator[str]:
    """Why the service is busy, whether it has an engine or not."""
    reports = (each for each in inputs.gateways.values() if isinstance(each, GatewayDemand))
    num_open = sum(report.num_open for report in reports)
    if num_open:
        yield f"{num_open} {'request waits or runs' if num_open == 1 else 'requests wait or run'}"
    if state.busy_s is not None and _has_arrivals(inputs.gateways, state.gateways):
        yield "a request came"
    running = sum(reading.running + reading.waiting for reading in inputs.seen.readings)
    if running and inputs.seen.provisioned:
        yield f"engines have {running} {'request' if running == 1 else 'requests'}"
    if inputs.is_rolling_out:
        yield "a revision is rolled out"
    if inputs.is_loading and inputs.seen.provisioned:
        yield "an engine loads an adapter"


def _has_arrivals(now: Mapping[str, GatewayState], before: Mapping[str, GatewayDemand]) -> bool:
    """Whether a request came since the last reports, or was open at a gateway that has ended since."""
    for name, demand in now.items():
        last = before.get(name)
        if isinstance(demand, SilentGateway):
            continue
        if last is None or last.started_s != demand.started_s:
            if demand.arrivals or (last is not None and last.num_open):
                return True
        elif demand.arrivals > last.arrivals:
            return True
    return any(last.num_open for name, last in before.items() if name not in now)


def _last_report(gateway: GatewayState, last: GatewayDemand | None) -> GatewayDemand | None:
    """The last report of a gateway; None if it no longer counts."""
    if isinstance(gateway, GatewayDemand):
        return gateway
    return last if gateway.may_hold else None


def _missing(inputs: IdleInputs) -> str | None:
    """Why it is not known whether requests came; None if it is."""
    for name, gateway in sorted(inputs.gateways.items()):
        if isinstance(gateway, SilentGateway) and gateway.may_hold:
            return f"the gateway {name} does not report{_bound(gateway)}"
    if not any(isinstance(each, GatewayDemand) for each in inputs.gateways.values()):
        return "no gateway reports"
    if inputs.seen.missing:
        first = inputs.seen.missing[0]
        return f"the engine {first.who} does not report ({first.reason})"
    return None


def _bound(gateway: SilentGateway) -> str:
    """The time for which a gateway that is not ready still counts, as the end of a sentence."""
    if gateway.unready_s is None:
        return ""
    left_s = gateway.hold_s - gateway.unready_s
    return f", and may hold requests for {left_s:.0f} s more, though it is not ready"
