"""Fields that the snapshot builder reads from InferenceServices, pods and ModelRoutes."""

import json

from tests.support.gateway_snapshots import build

from penstock.core.observed.name_claims import Precedence, Standing
from penstock.core.routing.header_pattern import HeaderPattern
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.route import Mirror, RouteRule
from penstock.core.routing.route_match import Match, TokenRange
from penstock.core.routing.sampling_limits import SamplingLimits
from penstock.core.routing.traffic_split import RolloutMirror
from penstock.core.spec.objectives import Objectives
from penstock.gateway.snapshots.snapshot import Route, Service

LABELS = {"service": "chat", "revision": "r1", "role": "serve"}


def objects():
    """Return a service, its pod and a route, each with all fields that the gateway reads."""
    meta = {"namespace": "n", "creationTimestamp": "2026-01-01T00:00:10Z"}
    service = {
        "metadata": meta | {"name": "chat"},
        "spec": {
            "model": {"name": "wanted"},
            "objectives": {"ttft": "2s", "tpot": "50ms", "attainment": "0.9"},
            "rollout": {"canary": {"sessionAffinity": {"type": "User"}}},
        },
        "status": {
            "modelName": "Qwen3",
            "traffic": [
                {"revision": "r1", "cohort": "Primary", "percent": 90},
                {"revision": "r2", "cohort": "Control", "percent": 10},
            ],
            "trafficGeneration": 7,
            "mirror": {"targets": [{"revision": "r2", "cohort": "Control"}], "percent": 25},
        },
    }
    pod = {
        "metadata": {
            "namespace": "n",
            "name": "chat-0",
            "labels": {f"serving.penstock.dev/{name}": value for name, value in LABELS.items()},
        },
        "spec": {
            "containers": [
                {"ports": [{"name": "metrics", "containerPort": 9}, {"containerPort": 10}]},
                {"ports": [{"name": "http", "containerPort": "8000"}]},
            ]
        },
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": "Initialized", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
        },
    }
    route = {
        "metadata": meta | {"name": "route"},
        "status": {"modelName": "any"},
        "spec": {
            "modelName": "any",
            "rules": [
                {
                    "name": "some",
                    "matches": [
                        {
                            "headers": [
                                {"name": "x-a", "value": "1"},
                                {"name": "X-B", "value": "2"},
                            ],
                            "users": ["ada", "bob"],
                        },
                        {"users": ["eve"]},
                    ],
                    "backendRefs": [{"name": "chat", "weight": 3}, {"name": "other"}],
                    "sessionAffinity": {"type": "Header", "header": "X-C"},
                    "mirrors": [
                        {"backendRef": {"name": "other"}, "revision": "r9", "percent": 12.5}
                    ],
                    "timeouts": {"request": "1m30s"},
                },
                {
                    "name": "rest",
                    "backendRefs": [{"name": "chat"}],
                    "sessionAffinity": {"type": "Conversation"},
                },
            ],
        },
    }
    return service, pod, route


CREATED_S = 1767225610  # 2026-01-01T00:00:10Z


def test_fields_of_a_service_and_its_pods():
    service, pod, _ = objects()
    bare = json.loads(json.dumps(pod))
    bare["metadata"] |= {"name": "chat-1", "labels": {"serving.penstock.dev/service": "chat"}}
    bare["status"]["conditions"] = []
    assert build([service], [bare, pod]).services == (
        Service(
            namespace="n",
            name="chat",
            served_name="Qwen3",
            created_s=CREATED_S,
            weights={Side("r1"): 90, Side("r2", "control"): 10},
            endpoints=(Endpoint("n/chat-0", "10.0.0.1:8000", "r1"),),
            objectives=Objectives(2.0, 0.05, 0.9),
            sides={"n/chat-0": Side("r1"), "n/chat-1": Side("")},
            affinity="User",
            generation=7,
            mirror=RolloutMirror((Side("r2", "control"),), 25),
        ),
    )


def test_fields_of_a_route():
    _, _, route = objects()
    assert build([], [], [route]).routes == (
        Route(
            namespace="n",
            name="route",
            served_name="any",
            created_s=CREATED_S,
            rules=(
                RouteRule(
                    matches=(
                        Match((("x-a", "1"), ("x-b", "2")), frozenset({"ada", "bob"})),
                        Match(users=frozenset({"eve"})),
                    ),
                    backends=(("chat", 3), ("other", 1)),
                    affinity_header="x-c",
                    mirrors=(Mirror("other", "r9", 12.5),),
                    timeout_s=90.0,
                ),
                RouteRule(matches=(), backends=(("chat", 1),), affinity="Conversation"),
            ),
        ),
    )


def test_sampling_limits_of_a_rule():
    _, _, route = objects()
    limits = {"maxOutputTokens": 9, "maxChoices": 2, "maxTemperature": "0.5", "maxTopLogprobs": 0}
    route["spec"]["rules"] = [{"backendRefs": [{"name": "chat"}], "samplingLimits": limits}]
    ((rule,),) = (each.rules for each in build([], [], [route]).routes)
    assert rule.sampling == SamplingLimits(9, 2, 0.5, 0)


def test_all_conditions_of_a_match():
    _, _, route = objects()
    match = {
        "headers": [{"name": "X-A", "type": "RegularExpression", "value": "1|2"}],
        "tenants": ["team-a"],
        "costTiers": ["economy"],
        "regions": ["eu-west"],
        "tasks": ["Chat"],
        "serviceTiers": ["flex"],
        "promptTokens": {"min": 5},
        "outputTokens": {"max": 9},
    }
    route["spec"]["rules"] = [{"backendRefs": [{"name": "chat"}], "matches": [match]}]
    ((rule,),) = (each.rules for each in build([], [], [route]).routes)
    assert rule.matches == (
        Match(
            header_patterns=(("x-a", HeaderPattern("1|2")),),
            tenants=frozenset({"team-a"}),
            cost_tiers=frozenset({"economy"}),
            regions=frozenset({"eu-west"}),
            tasks=frozenset({"Chat"}),
            service_tiers=frozenset({"flex"}),
            prompt_tokens=TokenRange(5, None),
            output_tokens=TokenRange(0, 9),
        ),
    )


def test_defaults_of_absent_fields():
    service, pod, _ = objects()
    del service["status"]
    service["spec"] = {"model": {}}
    (found,) = build([service], []).services
    pending = Precedence(Standing.PENDING)
    assert found == Service("n", "chat", "chat", CREATED_S, {}, (), precedence=pending)
    assert (found.mirror, found.objectives) == (None, None)
    pod["spec"]["containers"] = [{"name": "engine"}]
    assert build([service], [pod]).services[0].endpoints == ()
    del pod["status"]
    assert build([service], [pod]).services[0].sides == {"n/chat-0": Side("r1")}


def test_endpoints_are_sorted_by_pod_name():
    service, pod, _ = objects()
    pods = [json.loads(json.dumps(pod)) for _ in range(3)]
    for name, each in zip("cab", pods, strict=True):
        each["metadata"]["name"] = name
    names = [e.pod for e in build([service], pods).services[0].endpoints]
    assert names == ["n/a", "n/b", "n/c"]
