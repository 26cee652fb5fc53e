"""Values of the chart: merging, refusals, and the schema that Helm gets."""

from typing import Any

import jsonschema
import pytest
from tests.chart.value_sets import IMAGE, VALUE_SETS

from penstock.chart.gateway.values import MIN_GRACE_PERIOD_S
from penstock.chart.rendering.install import install_manifests
from penstock.chart.values import values_schema
from penstock.chart.values.values import InvalidValues, Values, complete, merged
from penstock.gateway.settings import GatewaySettings

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"operator": {"replica": 3}}, "operator.replica: the chart has no such value"),
    ({"gateway": {"replicas": "two"}}, "gateway.replicas: Input should be a valid integer"),
    ({"gateway": {"replicas": 0}}, "gateway.replicas: Input should be greater than or equal to 1"),
    ({"gateway": {"service": {"type": "Ingress"}}}, "gateway.service.type: Input should be"),
    ({"watchNamespace": "n" * 64}, "watchNamespace: String should have at most 63 characters"),
    ({"networkPolicy": {"gatewayFrom": [{}]}}, "networkPolicy.gatewayFrom.0: Dictionary should have"),
    (
        {"operator": {"topologySpread": {"topologyKeys": ["zone", "zone"]}}},
        "operator.topologySpread.topologyKeys: must not name a label twice",
    ),
    ({"gateway": {"priorityClassName": "Bad_Name"}}, "gateway.priorityClassName: String should match"),
    (
        {"operator": {"allowedHostPaths": ["/a/../b"]}},
        "operator.allowedHostPaths.0: must not contain '..'",
    ),
    ({"nodeCache": {"path": "/"}}, "nodeCache.path: String should match pattern"),
    ({"nodeCache": {"path": "/var/lib/"}}, "nodeCache.path: String should match pattern"),
    ({"nodeCache": {"path": "/var/../etc"}}, "nodeCache.path: must not contain '.' or '..'"),
    ({"nodeCache": {"sizeLimit": "0Gi"}}, "nodeCache.sizeLimit: String should match pattern"),
    ({"nodeCache": {"sizeLimit": "1.5Gi"}}, "nodeCache.sizeLimit: String should match pattern"),
    ({"nodeCache": {"sizeLimit": 5}}, "nodeCache.sizeLimit: Input should be a valid string"),
    ({"nodeCache": {"allowedSources": ["Qwen"]}}, "nodeCache.allowedSources.0: String should match"),
    ({"nodeCache": {"allowedSources": ["file:///"]}}, "nodeCache.allowedSources.0: String should"),
    ({"nodeCache": {"allowedSources": ["hf://a/b@main"]}}, "nodeCache.allowedSources.0: String"),
    ({"nodeCache": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "nodeCache.podLabels: "),
    ({"networkPolicy": {"sourcePorts": []}}, "networkPolicy.sourcePorts: List should have"),
    ({"operator": {"allowedHostPaths": ["/a/.."]}}, "operator.allowedHostPaths.0: must not contain"),
    (
        {
            "gateway": {
                "autoscaling": {"enabled": True},
                "resources": {"requests": {"cpu": None}},
            }
        },
        "gateway: autoscaling needs resources.requests.cpu",
    ),
    (
        {"gateway": {"terminationGracePeriodSeconds": 77}},
        "gateway: terminationGracePeriodSeconds must be at least 78",
    ),
    ({"gateway": {"tls": {"secretName": "A_b"}}}, "gateway.tls.secretName: String should match"),
    ({"gateway": {"region": "eu west"}}, "gateway.region: String should match"),
    (
        {"gateway": {"allowedExternalUrls": ["api.example.com"]}},
        "gateway.allowedExternalUrls.0: String should match",
    ),
    ({"gateway": {"trustedProxies": ["proxy"]}}, "gateway.trustedProxies.0: String should match"),
    ({"gateway": {"trustedProxies": ["0.0.0.0/0"]}}, "gateway.trustedProxies.0: String should match"),
    ({"gateway": {"extraVolumes": [{"name": "gateway-tls"}]}}, "gateway.extraVolumes.0: "),
    ({"watchNamespace": "Team_A"}, "watchNamespace: String should match pattern"),
    ({"image": {"digest": "latest"}}, "image.digest: String should match pattern"),
    ({"operator": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "operator.podLabels: "),
    ({"operator": None}, "operator: must not be null"),
    ({"gateway": {"service": {"annotations": None}}}, "gateway.service.annotations: must not be null"),
    ({"gateway": {"extraEnv": [{"value": "x"}]}}, "gateway.extraEnv.0: name must be set to a string"),
    (
        {
            "tracing": {"endpoint": "http://collector:4318"},
            "gateway": {"extraEnv": [{"name": "OTEL_TRACES_SAMPLER", "value": "always_on"}]},
        },
        "gateway.extraEnv has OTEL_TRACES_SAMPLER, which tracing sets",
    ),
    (
        {"monitoring": {"prometheusRule": {"runbooksUrl": "https://wiki/a: b"}}},
        "monitoring.prometheusRule.runbooksUrl: String should match pattern",
    ),
    (
        {"monitoring": {"prometheusRule": {"runbooksUrl": "https://wiki/runbooks/"}}},
        "monitoring.prometheusRule.runbooksUrl: String should match pattern",
    ),
    ({"networkPolicy": {"apiServerPorts": []}}, "networkPolicy.apiServerPorts: List should have"),
    (
        {"networkPolicy": {"prometheusPorts": [70000]}},
        "networkPolicy.prometheusPorts.0: Input should be less than or equal to 65535",
    ),
    ({"imagePullSecrets": ["registry"]}, "imagePullSecrets.0: Input should be"),
    (
        {"operator": {"prometheus": {"url": "http://p", "tokenFile": "/t"}}},
        "operator.prometheus: tokenFile needs a url with https",
    ),
    ({"operator": {"prometheus": {"caFile": "/c"}}}, "operator.prometheus: tokenFile and caFile need"),
    ({"tracing": {"endpoint": "collector:4318"}}, "tracing.endpoint: String should match pattern"),
    ({"tracing": {"endpoint": "grpc://collector:4317"}}, "tracing.endpoint: String should match"),
    ({"tracing": {"endpoint": "http://me:secret@collector"}}, "tracing.endpoint: String should match"),
    ({"tracing": {"endpoint": "http://collector:port"}}, "tracing.endpoint: String should match"),
    ({"tracing": {"sampler": "ratio"}}, "tracing.sampler: Input should be"),
    ({"tracing": {"sampler": "traceidratio"}}, "tracing: samplerArg is for traceidratio samplers"),
    ({"tracing": {"samplerArg": "0.1"}}, "tracing: samplerArg is for traceidratio samplers"),
    (
        {"tracing": {"sampler": "traceidratio", "samplerArg": "1.5"}},
        "tracing.samplerArg: String should match pattern",
    ),
]  # fmt: skip


def test_least_grace_period_is_that_of_the_default_drain_times() -> None:
    settings = GatewaySettings()
    assert settings.drain_delay_s + settings.drain_timeout_s + 15 == MIN_GRACE_PERIOD_S


def test_maps_are_merged_lists_replaced_and_nulls_removed() -> None:
    given = {
        "gateway": {"resources": {"limits": {"memory": None, "cpu": 2}}},
        "networkPolicy": {"apiServerPorts": [1]},
    }
    values = complete(given)
    assert values["gateway"]["resources"] == {
        "requests": {"cpu": "250m", "memory": "256Mi"},
        "limits": {"cpu": 2},
    }
    assert values["networkPolicy"]["apiServerPorts"] == [1]
    assert values["operator"] == complete({})["operator"]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_wrong_values_are_refused_by_path(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValues) as refused:
        complete(values)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("component", ["operator", "gateway"])
@pytest.mark.parametrize(
    ("own", "extra", "key"),
    [
        ("env", "extraEnv", "name"),
        ("volumes", "extraVolumes", "name"),
        ("volumeMounts", "extraVolumeMounts", "mountPath"),
    ],
)
def test_what_a_pod_has_already_is_refused(component: str, own: str, extra: str, key: str) -> None:
    """The API server refuses lists with two items of one name."""
    traced = {"tracing": {"endpoint": "http://c", "sampler": "traceidratio", "samplerArg": "1"}}
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in install_manifests(IMAGE | traced)
        if each["kind"] == "Deployment" and each["metadata"]["name"] == f"penstock-{component}"
    )
    items = pod[own] if own == "volumes" else pod["containers"][0][own]
    assert items
    for item in items:
        values = traced | {component: {extra: [{key: item[key]}]}}
        with pytest.raises(InvalidValues, match=item[key]):
            complete(values)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(with_defaults(values), values_schema.schema())


@pytest.mark.parametrize(("values", "_"), REFUSED)
def test_the_schema_refuses_them_too(values: dict[str, Any], _: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(with_defaults(values), values_schema.schema())


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_the_schema_allows_what_is_allowed(values: dict[str, Any]) -> None:
    jsonschema.validate(with_defaults(merged(IMAGE, values)), values_schema.schema())


def with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """The values as Helm checks them."""
    return merged(Values().model_dump(by_alias=True), values)


def test_ports_of_the_gateway_are_different() -> None:
    said = "gateway: managementPort must not be port; choose another one"
    with pytest.raises(InvalidValues, match=said):
        complete({"gateway": {"port": 8082}})
    complete({"gateway": {"port": 8082, "managementPort": 8080}})


def test_bounds_of_the_autoscaler_are_compared_where_it_is_enabled() -> None:
    """A JSON schema cannot compare values: the templates do for Helm."""
    bounds = {"minReplicas": 3, "maxReplicas": 2}
    complete({"gateway": {"autoscaling": bounds}})
    said = (
        "gateway.autoscaling: minReplicas must not be greater than maxReplicas; raise maxReplicas"
    )
    with pytest.raises(InvalidValues, match=said):
        complete({"gateway": {"autoscaling": bounds | {"enabled": True}}})


@pytest.mark.parametrize(
    "own",
    [
        {"extraArgs": ["--drain-timeout-s=1"]},
        {"extraEnv": [{"name": "PENSTOCK_GW_DRAIN_TIMEOUT_S", "value": "1"}]},
    ],
)
def test_a_gateway_with_its_own_drain_times_may_have_less_time(own: dict[str, Any]) -> None:
    values = {"gateway": {"terminationGracePeriodSeconds": 20} | own}
    complete(values)
    jsonschema.validate(with_defaults(values), values_schema.schema())
