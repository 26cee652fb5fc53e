"""TLS of the gateway in the installed objects."""

from typing import Any

import pytest
from tests.chart.value_sets import IMAGE

from penstock.chart.names import GATEWAY, OPERATOR
from penstock.chart.rendering.install import install_manifests
from penstock.chart.values.values import merged
from penstock.controller.process.settings import Settings


def objects(values: dict[str, Any]) -> dict[tuple[str, str], Any]:
    made = install_manifests(merged(IMAGE, values), "here")
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def container(values: dict[str, Any], name: str) -> Any:
    return objects(values)["Deployment", name]["spec"]["template"]["spec"]["containers"][0]


def test_tls_of_the_gateway() -> None:
    """The probes stay at the management port, which is plain HTTP."""
    values = {"gateway": {"tls": {"secretName": "certificate"}, "trustedProxies": ["10.0.0.0/8"]}}
    made = objects(values)
    gateway = container(values, GATEWAY)
    assert [each for each in gateway["args"] if "tls" in each or "proxy" in each] == [
        "--tls-certificate=/etc/penstock/tls/tls.crt",
        "--tls-key=/etc/penstock/tls/tls.key",
        "--trusted-proxy=10.0.0.0/8",
    ]
    mount = {"name": "gateway-tls", "mountPath": "/etc/penstock/tls", "readOnly": True}
    assert mount in gateway["volumeMounts"]
    pod = made["Deployment", GATEWAY]["spec"]["template"]["spec"]
    volume = {"name": "gateway-tls", "secret": {"secretName": "certificate"}}
    assert volume in pod["volumes"]
    assert [each["name"] for each in gateway["ports"]] == ["https", "management"]
    assert made["Service", GATEWAY]["spec"]["ports"] == [
        {"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}
    ]
    probe = gateway["readinessProbe"]["httpGet"]
    assert (probe["port"], probe["scheme"]) == ("management", "HTTP")
    assert "--gateway-tls" in container(values, OPERATOR)["args"]


def test_without_tls_the_gateway_is_plain() -> None:
    made = objects({})
    gateway = container({}, GATEWAY)
    assert not any("tls" in each for each in gateway["args"])
    assert [each["name"] for each in gateway["volumeMounts"]] == ["tmp"]
    assert made["Service", GATEWAY]["spec"]["ports"] == [
        {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}
    ]
    assert "--gateway-tls" not in container({}, OPERATOR)["args"]


@pytest.mark.parametrize(
    ("has_tls", "url"),
    [
        (False, "http://penstock-gateway.here.svc/v1"),
        (True, "https://penstock-gateway.here.svc/v1"),
    ],
)
def test_url_of_services(has_tls: bool, url: str) -> None:
    settings = Settings("me", "image", "here", "127.0.0.1", 0, gateway_has_tls=has_tls)
    assert settings.gateway_url == url
