"""The objects that install Penstock, as plain manifests."""

from typing import Any

import pytest
from tests.chart.value_sets import IMAGE, VALUE_SETS

from penstock.chart.names import GATEWAY, KEYS_ROLE, OPERATOR, USER_EDIT_ROLE, USER_VIEW_ROLE
from penstock.chart.rendering.install import image_values, install_manifests
from penstock.chart.rendering.resolve import RefusedValue
from penstock.chart.values.values import merged
from penstock.core.observed.label_selector import selects

CLUSTER_SCOPED = {
    "Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "FlowSchema",
    "PriorityLevelConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip


def objects(values: dict[str, Any]) -> dict[tuple[str, str], Any]:
    made = install_manifests(merged(IMAGE, values), "here")
    found = {(each["kind"], each["metadata"]["name"]): each for each in made}
    assert len(found) == len(made)
    return found


def container(values: dict[str, Any], name: str) -> Any:
    return objects(values)["Deployment", name]["spec"]["template"]["spec"]["containers"][0]


def test_drains_take_one_gateway_and_one_operator_at_a_time() -> None:
    by_kind = objects({})
    for name in (OPERATOR, GATEWAY):
        template = by_kind["Deployment", name]["spec"]["template"]
        guarded = by_kind["PodDisruptionBudget", name]["spec"]
        assert guarded["maxUnavailable"] == 1
        assert selects(guarded["selector"], template["metadata"]["labels"])
        spread = template["spec"]["topologySpreadConstraints"]
        # The scheduler leaves out nodes that lack the label of a second key.
        assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname"]
        (preferred,) = template["spec"]["affinity"]["podAntiAffinity"].values()
        (zones,) = [each["podAffinityTerm"] for each in preferred]
        assert zones["topologyKey"] == "topology.kubernetes.io/zone"
        assert selects(zones["labelSelector"], template["metadata"]["labels"])
        other = next(each for each in (OPERATOR, GATEWAY) if each != name)
        others = by_kind["Deployment", other]["spec"]["template"]["metadata"]["labels"]
        for selector in (
            guarded["selector"],
            *(each["labelSelector"] for each in (*spread, zones)),
        ):
            assert not selects(selector, others)


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_rights_have_no_wildcard_and_lists_of_secrets(values: dict[str, Any]) -> None:
    roles = [each for (kind, _), each in objects(values).items() if kind.endswith("Role")]
    rules = [rule for role in roles for rule in role["rules"]]
    of_users = 2 if values.get("userRoles", {}).get("enabled", True) else 0
    # Those for Tenants, which belong to no namespace
    of_tenants = 2 if "watchNamespace" in values and "tenantRoles" not in values else 0
    of_gateway_pods = 1 if "watchNamespace" in values else 0
    assert len(roles) == 4 + of_users + of_tenants + of_gateway_pods
    for rule in rules:
        assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
    (keys,) = [role for role in roles for rule in role["rules"] if "secrets" in rule["resources"]]
    assert keys["metadata"]["namespace"] == "penstock-keys"
    assert keys["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
    ]


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_objects_are_in_the_namespace_of_the_installation(values: dict[str, Any]) -> None:
    """Rights are where the services are."""
    watched = values.get("watchNamespace")
    for (kind, name), each in objects(values).items():
        namespace = each["metadata"].get("namespace")
        if kind in CLUSTER_SCOPED:
            assert namespace is None
        elif watched and kind in ("Role", "RoleBinding") and name in (OPERATOR, GATEWAY):
            assert namespace == watched
        elif name == KEYS_ROLE:
            assert namespace == "penstock-keys"
        else:
            assert namespace == "here"


def test_the_keys_have_a_namespace_of_their_own() -> None:
    with pytest.raises(RefusedValue, match=r"gateway\.keysNamespace must not be the release's"):
        objects({"gateway": {"keysNamespace": "here"}})


def test_an_installation_for_one_namespace_has_no_rights_in_others() -> None:
    by_kind = objects({"watchNamespace": "team-a"})
    # Two roles are for users: the installation binds nobody to them. Tenants belong to no namespace.
    tenant_roles = {name: f"{name}-tenants-here" for name in (OPERATOR, GATEWAY)}
    assert {(kind, name) for kind, name in by_kind if kind.startswith("ClusterRole")} == {
        ("ClusterRole", USER_VIEW_ROLE),
        ("ClusterRole", USER_EDIT_ROLE),
        *(
            (kind, name)
            for kind in ("ClusterRole", "ClusterRoleBinding")
            for name in tenant_roles.values()
        ),
    }
    for name in tenant_roles.values():
        for rule in by_kind["ClusterRole", name]["rules"]:
            assert set(rule["resources"]) <= {"tenants", "tenants/status", "tokenreviews"}
    # The Lease and the gateways are where the operator is.
    local = by_kind["Role", "penstock-operator-lease"]["rules"]
    assert [(rule["resources"], rule["verbs"]) for rule in local] == [
        (["leases"], ["get", "create", "update"]),
        (["pods"], ["list", "watch"]),
    ]
    for name in (OPERATOR, GATEWAY):
        assert "--namespace=team-a" in container({"watchNamespace": "team-a"}, name)["args"]
        assert not any(
            "--namespace" in arg for arg in container({}, name)["args"][2:] if "lease" not in arg
        )


def ingress(values: dict[str, Any], name: str) -> list[Any]:
    """The ingress rules of a component's policy."""
    rules: list[Any] = objects(values)["NetworkPolicy", name]["spec"]["ingress"]
    return rules


@pytest.mark.parametrize("name", ["defaults", "peers", "host_network"])
def test_policies_let_the_operator_read_from_gateways(name: str) -> None:
    """The operator may read stats reports, whichever clients the policy admits."""
    by_kind = objects(VALUE_SETS[name])
    operator, gateway = (
        by_kind["Deployment", each]["spec"]["template"] for each in (OPERATOR, GATEWAY)
    )
    ports = gateway["spec"]["containers"][0]["ports"]
    (port,) = (each["containerPort"] for each in ports if each["name"] == "management")

    def allowed(rules: list[Any], peers: str, template: Any) -> bool:
        is_selectable = not template["spec"].get("hostNetwork")
        labels = template["metadata"]["labels"]
        return any(
            {"port": port, "protocol": "TCP"} in rule["ports"]
            and (
                peers not in rule
                or any(
                    is_selectable and [*each] == ["podSelector"] and selects(each["podSelector"], labels)
                    for each in rule[peers]
                )
            )
            for rule in rules
        )  # fmt: skip

    assert allowed(by_kind["NetworkPolicy", f"{OPERATOR}-egress"]["spec"]["egress"], "to", gateway)
    assert allowed(by_kind["NetworkPolicy", GATEWAY]["spec"]["ingress"], "from", operator)


def test_clients_of_the_gateway_can_be_restricted() -> None:
    peers = VALUE_SETS["peers"]["networkPolicy"]["gatewayFrom"]
    clients, _ = ingress(VALUE_SETS["peers"], GATEWAY)
    assert clients == {"ports": [{"port": 8080, "protocol": "TCP"}], "from": peers}


@pytest.mark.parametrize(("name", "port"), [(OPERATOR, 8081), (GATEWAY, 8082)])
def test_metrics_are_for_the_own_namespace_and_named_peers(name: str, port: int) -> None:
    def rule(values: dict[str, Any]) -> Any:
        return ingress(values, name)[-1]

    ports = [{"port": port, "protocol": "TCP"}]
    assert rule({}) == {"ports": ports, "from": [{"podSelector": {}}]}
    peers = VALUE_SETS["peers"]["networkPolicy"]["metricsFrom"]
    assert rule(VALUE_SETS["peers"]) == {"ports": ports, "from": [{"podSelector": {}}, *peers]}


def test_a_policy_has_rules_of_one_direction() -> None:
    """kube-router lets the ingress rules of a policy allow egress too."""
    specs = [each["spec"] for (kind, _), each in objects({}).items() if kind == "NetworkPolicy"]
    assert [[*spec] for spec in specs] == 2 * [
        ["podSelector", "policyTypes", "ingress"],
        ["podSelector", "policyTypes", "egress"],
    ]
    assert [spec["policyTypes"] for spec in specs] == 2 * [["Ingress"], ["Egress"]]


def test_egress_to_the_api_server_can_be_restricted() -> None:
    def rule(values: dict[str, Any]) -> Any:
        egress = objects(values)["NetworkPolicy", f"{GATEWAY}-egress"]["spec"]["egress"]
        return next(each for each in egress if {"port": 6443, "protocol": "TCP"} in each["ports"])

    assert "to" not in rule({})
    assert rule(VALUE_SETS["api_server"])["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]


def test_egress_to_dns_servers_can_be_restricted() -> None:
    def rule(values: dict[str, Any], name: str) -> Any:
        return objects(values)["NetworkPolicy", f"{name}-egress"]["spec"]["egress"][0]

    restricted = VALUE_SETS["api_server"]
    for name in (OPERATOR, GATEWAY):
        assert "to" not in rule({}, name)
        assert rule(restricted, name) == {
            "ports": [{"port": 1053, "protocol": "UDP"}, {"port": 1053, "protocol": "TCP"}],
            "to": restricted["networkPolicy"]["dnsTo"],
        }


def test_a_gateway_on_the_nodes_network_finds_services_by_name() -> None:
    def pod(values: dict[str, Any]) -> Any:
        return objects(values)["Deployment", GATEWAY]["spec"]["template"]["spec"]

    assert pod(VALUE_SETS["host_network"])["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "dnsPolicy" not in pod({})


def test_options_of_the_operator() -> None:
    assert container(VALUE_SETS["prometheus"], OPERATOR)["args"] == [
        "operator", "run",
        "--engine-image=registry.example/team/penstock-engine:v1",
        "--host=$(POD_IP)", "--port=8081",
        "--lease-namespace=here",
        "--log-level=info",
        "--metrics-host=prometheus.monitoring:9090",
        "--metrics-host=other",
        "--engines-from=[]",
        "--prometheus-url=https://prometheus.monitoring:9091/x?a=1&b=2",
        "--prometheus-token-file=/token/token",
        "--prometheus-ca-file=/ca.crt",
    ]  # fmt: skip


def test_the_operator_learns_who_may_connect_to_engines() -> None:
    def flags(values: dict[str, Any]) -> list[str]:
        return [arg for arg in container(values, OPERATOR)["args"] if arg.startswith("--engines")]

    assert flags({}) == ["--engines-from=[]"]
    assert flags(VALUE_SETS["host_network"]) == [
        '--engines-from=[{"ipBlock":{"cidr":"10.1.0.0/16","except":["10.1.9.0/24"]}}]'
    ]
    assert flags(VALUE_SETS["open_engines"]) == flags(VALUE_SETS["bare"]) == []


def test_tracing_sets_the_variables_of_opentelemetry() -> None:
    def variables(values: dict[str, Any], name: str) -> dict[str, str]:
        env = container(values, name)["env"]
        return {each["name"]: each["value"] for each in env if each["name"].startswith("OTEL_")}

    assert variables(VALUE_SETS["traced"], GATEWAY) == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.observability:14318/otlp",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.01",
    }
    assert variables({}, GATEWAY) == variables(VALUE_SETS["traced"], OPERATOR) == {}


def ports_to_anybody(values: dict[str, Any], name: str) -> set[int]:
    """Ports at which a component may connect to any peer, but for DNS and the API server."""
    always = {53, 5353, 443, 6443, 8443, 16443}
    rules = objects(values)["NetworkPolicy", f"{name}-egress"]["spec"]["egress"]
    return {each["port"] for rule in rules if "to" not in rule for each in rule["ports"]} - always


def test_only_a_gateway_with_tracing_reaches_the_collector() -> None:
    traced = VALUE_SETS["traced"]
    assert ports_to_anybody(traced, GATEWAY) == {4318, 14318}
    assert ports_to_anybody(traced, OPERATOR) == ports_to_anybody({}, GATEWAY) == set()
    assert ports_to_anybody(VALUE_SETS["traced_path"], GATEWAY) == {4318, 80}
    assert ports_to_anybody(VALUE_SETS["traced_https"], GATEWAY) == {4318}


def test_the_operator_reaches_the_ports_of_its_prometheus_servers() -> None:
    """A host without a port may be asked by http."""
    assert ports_to_anybody(VALUE_SETS["prometheus"], OPERATOR) == {9092, 9090, 80, 9091}
    url = {"operator": {"prometheus": {"url": "http://p:8428"}}}
    assert ports_to_anybody(url, OPERATOR) == {9090, 8428}
    assert ports_to_anybody(url, GATEWAY) == set()


def test_limits_of_templates() -> None:
    """The operator's flags, and the policy, which is for the watched namespace."""
    name = ("ValidatingAdmissionPolicy", "penstock-operator-here")
    assert "namespaceSelector" not in objects({})[name]["spec"]["matchConstraints"]
    chosen = objects({"watchNamespace": "team-a"})[name]["spec"]["matchConstraints"]
    assert selects(chosen["namespaceSelector"], {"kubernetes.io/metadata.name": "team-a"})
    for absent in ("bare", "unrestricted_templates"):
        assert not any(kind.startswith("Validating") for kind, _ in objects(VALUE_SETS[absent]))
    args = container(VALUE_SETS["unrestricted_templates"], OPERATOR)["args"]
    assert "--allow-unrestricted-templates" in args
    args = container(VALUE_SETS["models_on_nodes"], OPERATOR)["args"]
    assert "--allowed-host-path=/models" in args
    args = container(VALUE_SETS["service_accounts"], OPERATOR)["args"]
    assert "--allowed-service-account=team-a/model-reader" in args


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("penstock", ("penstock", "", "")),
        ("host:5000/a/penstock", ("host:5000/a/penstock", "", "")),
        ("host:5000/a/penstock:v1", ("host:5000/a/penstock", "v1", "")),
        ("a/b:v1@sha256:" + "0" * 64, ("a/b", "v1", "sha256:" + "0" * 64)),
    ],
)
def test_parts_of_an_image_reference(reference: str, parts: tuple[str, str, str]) -> None:
    image = image_values(reference)["image"]
    assert (image["repository"], image["tag"], image["digest"]) == parts


def test_an_image_must_be_named() -> None:
    with pytest.raises(RefusedValue, match=r"image\.repository must be set"):
        install_manifests({})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"gateway": {"hostNetwork": True}},
            "networkPolicy.enginesFrom must name the addresses of the nodes, which gateway.hostNetwork lets",
        ),
        (
            {"monitoring": {"podMonitor": {"enabled": True}}},
            "networkPolicy.enginesFrom must name Prometheus, which monitoring.podMonitor lets",
        ),
    ],
)
def test_peers_of_engines_that_no_label_selects_have_to_be_named(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(RefusedValue) as refused:
        objects(values)
    assert str(refused.value).startswith(message)
    assert objects(merged(values, {"networkPolicy": {"engines": False}}))
