"""Scale to zero: when a service without requests loses its last replica, and when it wakes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.scaling.by_kv.engine_loads import engine

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.by_kv.rule import KvRule
from penstock.core.scaling.by_kv.tick import KvSettings, KvTick
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.idle import (
    PRIOR_STARTUP_S,
    GatewayDemand,
    GatewayState,
    IdleAction,
    IdleDecision,
    IdleInputs,
    IdleRule,
    IdleState,
    SilentGateway,
)
from penstock.core.scaling.learned.startup import PROGRESS_DEADLINE_S
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import Missing, Observation, PodView
from penstock.core.scaling.what_if import changes
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import ScalingSpec

NOW_S = 10_000.0
RULE = IdleRule(300.0)
SILENT = SilentGateway()
QUIET = GatewayDemand(started_s=1.0, arrivals=7, num_open=0)
BUSY_SINCE_LONG = IdleState(busy_s=NOW_S - 300.0, gateways={"gw-0": QUIET})


def ready(reading: object = None, *, running: int = 0, waiting: int = 0) -> PodView:
    load = replace(engine(running=running, waiting=waiting), at_s=NOW_S)
    return PodView("chat-0", "Ready", 100.0, 142.0, load if reading is None else reading)  # type: ignore[arg-type]


def observation(*pods: PodView, provisioned: int = 1) -> Observation:
    return Observation(NOW_S, pods, provisioned)


def decide(inputs: IdleInputs, state: IdleState = BUSY_SINCE_LONG) -> IdleDecision:
    return RULE.decide(inputs, state)[0]


AWAKE = IdleInputs(observation(ready()), {"gw-0": QUIET})
AT_ZERO = IdleInputs(observation(provisioned=0), {"gw-0": QUIET})
STARTING = PodView("chat-1", "Starting", NOW_S - 10, None, None)


@pytest.mark.parametrize(
    ("inputs", "action", "reason"),
    [
        (AWAKE, "ScaleToZero", "no request came for 300 s"),
        (replace(AWAKE, gateways={"gw-0": replace(QUIET, num_open=1)}), "Keep", "1 request waits"),
        (replace(AWAKE, gateways={"gw-0": replace(QUIET, arrivals=8)}), "Keep", "a request came"),
        (replace(AWAKE, gateways={"gw-0": SILENT}), "Hold", "the gateway gw-0 does not report"),
        (
            replace(AWAKE, gateways={"gw-0": QUIET, "gw-1": SILENT}),
            "Hold",
            "the gateway gw-1 does not report",
        ),
        (replace(AWAKE, gateways={}), "Hold", "no gateway reports"),
        (replace(AWAKE, is_rolling_out=True), "Keep", "a revision is rolled out"),
        (replace(AWAKE, is_loading=True), "Keep", "an engine loads an adapter"),
        (replace(AWAKE, seen=observation(ready(running=2))), "Keep", "engines have 2 requests"),
        (replace(AWAKE, seen=observation(ready(waiting=1))), "Keep", "engines have 1 request"),
        (
            replace(AWAKE, seen=observation(ready(Missing("chat-0", "ReadTimeout")))),
            "Hold",
            "the engine chat-0 does not report (ReadTimeout)",
        ),
        (replace(AWAKE, seen=observation(STARTING)), "Keep", "an engine is starting"),
        # A pod that has found no node for longer than any start-up takes holds nothing back.
        (
            replace(
                AWAKE,
                seen=observation(replace(STARTING, created_s=NOW_S - 2 * PROGRESS_DEADLINE_S)),
            ),
            "ScaleToZero",
            "no request came for 300 s",
        ),
        (AT_ZERO, "StayAtZero", "no request waits"),
        (replace(AT_ZERO, gateways={"gw-0": SILENT}), "StayAtZero", "no request waits"),
        (
            replace(AT_ZERO, gateways={"gw-0": replace(QUIET, num_open=2)}),
            "Wake",
            "2 requests wait",
        ),
        # A request that was refused and comes again later wakes the service too.
        (replace(AT_ZERO, gateways={"gw-0": replace(QUIET, arrivals=8)}), "Wake", "a request came"),
        # The request at one gateway wakes the service, though another gateway does not report.
        (
            replace(AT_ZERO, gateways={"gw-0": SILENT, "gw-1": GatewayDemand(9.0, 1, 1)}),
            "Wake",
            "1 request waits",
        ),
        (replace(AT_ZERO, is_rolling_out=True), "Wake", "a revision is rolled out"),
        (replace(AT_ZERO, is_loading=True), "StayAtZero", "no request waits"),
    ],
)
def test_action_and_reason(inputs: IdleInputs, action: IdleAction, reason: str) -> None:
    decision = decide(inputs)
    assert decision.action == action
    assert decision.reason.startswith(reason)


def test_a_new_operator_waits_for_the_whole_idle_time() -> None:
    first, state = RULE.decide(AWAKE, IdleState())
    assert (first.action, first.reason) == ("Keep", "requests are watched from now on")
    later = replace(AWAKE, seen=replace(observation(ready()), now_s=NOW_S + 299.0))
    later = replace(later, seen=replace(later.seen, pods=()))
    assert RULE.decide(later, state)[0].reason == "idle for 299 of 300 s"
    due = replace(later, seen=replace(later.seen, now_s=NOW_S + 300.0))
    assert RULE.decide(due, state)[0].action == "ScaleToZero"


def test_a_new_operator_at_zero_does_not_wake_for_requests_of_the_past() -> None:
    decision, state = RULE.decide(AT_ZERO, IdleState())
    assert decision.action == "StayAtZero"
    again = replace(AT_ZERO, gateways={"gw-0": replace(QUIET, arrivals=8)})
    assert RULE.decide(again, state)[0].action == "Wake"


@pytest.mark.parametrize(
    ("before", "now", "is_news"),
    [
        ({"gw-0": QUIET}, {"gw-0": replace(QUIET, started_s=2.0, arrivals=0)}, False),
        ({"gw-0": QUIET}, {"gw-0": replace(QUIET, started_s=2.0, arrivals=1)}, True),
        # A gateway that restarts has lost the requests that it held: their clients come again.
        (
            {"gw-0": replace(QUIET, num_open=3)},
            {"gw-0": replace(QUIET, started_s=2.0, arrivals=0)},
            True,
        ),
        ({"gw-0": QUIET, "gw-1": replace(QUIET, num_open=1)}, {"gw-0": QUIET}, True),
        ({"gw-0": QUIET, "gw-1": QUIET}, {"gw-0": QUIET}, False),
        ({"gw-0": QUIET}, {"gw-0": QUIET, "gw-1": GatewayDemand(2.0, 0, 0)}, False),
        ({"gw-0": QUIET}, {"gw-0": QUIET, "gw-1": GatewayDemand(2.0, 1, 0)}, True),
    ],
)
def test_gateways_come_restart_and_go(
    before: dict[str, GatewayDemand], now: dict[str, GatewayState], is_news: bool
) -> None:
    state = IdleState(busy_s=NOW_S - 300.0, gateways=before)
    assert (decide(replace(AWAKE, gateways=now), state).action == "Keep") == is_news
    assert (decide(replace(AT_ZERO, gateways=now), state).action == "Wake") == is_news


def test_requests_that_a_silent_gateway_had_meanwhile_count_when_it_reports_again() -> None:
    _, state = RULE.decide(replace(AWAKE, gateways={"gw-0": SILENT}), BUSY_SINCE_LONG)
    assert state.busy_s == NOW_S - 300.0
    heard = replace(AWAKE, gateways={"gw-0": replace(QUIET, arrivals=9)})
    decision, state = RULE.decide(heard, state)
    assert (decision.action, decision.reason, state.busy_s) == ("Keep", "a request came", NOW_S)


def with_second(gateway: GatewayState) -> IdleInputs:
    return replace(AWAKE, gateways={"gw-0": QUIET, "gw-1": gateway})


@pytest.mark.parametrize(
    ("gateway", "action", "reason"),
    [
        (
            SilentGateway(20.0, 300.0), "Hold",
            "the gateway gw-1 does not report, and may hold requests for 280 s more, though it is not ready",
        ),
        (SilentGateway(299.9, 300.0), "Hold", "the gateway gw-1 does not report, and may hold"),
        (SilentGateway(300.0, 300.0), "ScaleToZero", "no request came for 300 s"),
        (SilentGateway(300.0, 900.0), "Hold", "the gateway gw-1 does not report, and may hold"),
        # Clients are led to a ready one, so it may have requests however long it is silent.
        (SilentGateway(None, 300.0), "Hold", "the gateway gw-1 does not report"),
    ],
)  # fmt: skip
def test_a_gateway_without_clients_counts_for_as_long_as_it_holds_requests(
    gateway: SilentGateway, action: IdleAction, reason: str
) -> None:
    decision = decide(with_second(gateway))
    assert (decision.action, decision.reason[: len(reason)]) == (action, reason)


def test_what_is_not_known_is_of_no_importance_before_the_idle_time_is_over() -> None:
    state = replace(BUSY_SINCE_LONG, busy_s=NOW_S - 299.0)
    assert decide(with_second(SILENT), state).action == "Keep"


def test_requests_of_a_gateway_that_no_client_waits_at_do_not_keep_the_service_up() -> None:
    held = IdleState(
        busy_s=NOW_S - 300.0, gateways={"gw-0": QUIET, "gw-1": replace(QUIET, num_open=3)}
    )
    decision, state = RULE.decide(with_second(SilentGateway(300.0, 300.0)), held)
    assert decision.action == "ScaleToZero"
    assert decide(AWAKE, state).action == "ScaleToZero"  # its pod is gone


def test_what_a_wake_up_costs_is_learned_from_pods() -> None:
    fresh, state = RULE.decide(AWAKE, IdleState())
    assert (fresh.startup_s, RULE.decide(AT_ZERO, IdleState())[0].startup_s) == (
        42,
        PRIOR_STARTUP_S,
    )
    slept = decide(AWAKE, replace(state, busy_s=NOW_S - 300.0))
    assert slept.reason.endswith("the next request waits about 42 s for an engine")
    waiting = replace(AT_ZERO, gateways={"gw-0": replace(QUIET, num_open=1)})
    assert decide(waiting, state).reason.endswith("an engine is expected in 42 s")


demands = st.builds(
    GatewayDemand,
    started_s=st.sampled_from([1.0, 2.0]),
    arrivals=st.integers(0, 3),
    num_open=st.integers(0, 2),
)
steps = st.tuples(
    st.floats(0.1, 200.0),
    st.dictionaries(st.sampled_from(["gw-0", "gw-1"]), st.just(SILENT) | demands, max_size=2),
    st.booleans(),
)


@given(st.lists(steps, max_size=30))
def test_zero_needs_the_whole_idle_time_without_work_and_work_ends_it(
    history: list[tuple[float, dict[str, GatewayState], bool]],
) -> None:
    now_s, state, provisioned, busy_s = 0.0, IdleState(), 1, 0.0
    for passed_s, gateways, is_rolling_out in history:
        now_s += passed_s
        inputs = IdleInputs(Observation(now_s, (), provisioned), gateways, is_rolling_out)
        first = state.busy_s is None
        decision, state = RULE.decide(inputs, state)
        has_work = is_rolling_out or any(
            isinstance(d, GatewayDemand) and d.num_open for d in gateways.values()
        )
        busy_s = now_s if has_work or first else busy_s
        if has_work:
            assert not decision.is_zero
        if decision.action == "ScaleToZero":
            assert now_s - busy_s >= RULE.idle_after_s
            assert gateways
            assert SILENT not in gateways.values()
        assert (decision.action in ("StayAtZero", "Wake")) == (provisioned == 0)
        provisioned = 0 if decision.is_zero else 1


SCALING = ScalingSpec("Active", min_replicas=0, max_replicas=4)
BY_OBJECTIVES = ObjectivesRule(prior=IterationModel(0.05, 3e-4, 1e-4, 1e-7))


def by_kv(idle: IdleDecision, at: Observation) -> Decision:
    rule = KvRule(0.75, 4, 60.0)
    return rule.decide(None, Bounds.of(SCALING, idle), at, rule.initial())[0]


def by_objectives(idle: IdleDecision, at: Observation) -> Decision:
    rule = BY_OBJECTIVES
    bounds = Bounds.of(SCALING, idle)
    return rule.decide(Objectives(2.0, 0.1), bounds, at, rule.initial())[0]


@pytest.mark.parametrize("rule", [by_kv, by_objectives])
def test_each_rule_obeys_the_decision_about_zero(rule: object) -> None:
    assert callable(rule)
    sleeping = IdleDecision("ScaleToZero", "no request came for 300 s", 42)
    decision = rule(sleeping, observation(ready()))
    assert (decision.desired, decision.code) == (0, "ScaledToZero")
    assert (decision.reason, decision.valid) == (sleeping.reason, True)
    assert [(e.step, e.replicas) for e in decision.trail] == [("idle", 0)]
    woken = rule(IdleDecision("Wake", "1 request waits or runs", 42), observation(provisioned=0))
    assert (woken.desired, woken.code, woken.valid) == (1, "ScaleUp", True)
    assert woken.reason == "1 request waits or runs"
    kept = rule(IdleDecision("Keep", "idle for 10 of 300 s", 42), observation(ready()))
    assert (kept.desired, kept.trail[-1].step, kept.is_blind) == (1, "idle", False)
    assert kept.trail[-1].note == "idle for 10 of 300 s"
    held = rule(IdleDecision("Hold", "no gateway reports", 42), observation(ready()))
    assert (held.desired, held.trail[-1].step, held.is_blind) == (1, "idle-unknown", True)


def test_bounds_without_scale_to_zero_are_those_of_the_spec() -> None:
    assert Bounds.of(replace(SCALING, min_replicas=2)) == Bounds(2, 4)
    kept = IdleDecision("Keep", "", 42)
    assert Bounds.of(SCALING, kept) == Bounds(1, 4, kept)


def test_a_request_is_what_would_change_the_number_at_zero() -> None:
    bounds = Bounds.of(SCALING, IdleDecision("StayAtZero", "no request waits", 42))
    rule = KvRule(0.75, 4, 60.0)
    settings, at = KvSettings(rule, bounds), observation(provisioned=0)
    decision, _ = rule.decide(None, bounds, at, rule.initial())
    [change] = changes(KvTick(settings, rule.initial(), at, decision))
    assert (change.what, change.decision.desired) == ("a request", 1)
    assert change.decision.reason == "a request came; an engine is expected in 42 s"
