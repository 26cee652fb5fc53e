"""The gateway's Deployment, disruption budget, Service and autoscaler."""

from penstock.chart.component import batch_token
from penstock.chart.component.deployment import deployment, disruption_budget, flag
from penstock.chart.gateway.tracing import OTEL_VARIABLES
from penstock.chart.gateway.values import BOUNDS_REFUSED, PORTS_REFUSED
from penstock.chart.names import (
    BATCH,
    BATCH_PORT,
    GATEWAY,
    MANAGEMENT_PORT_NAME,
    TLS_FOLDER,
    TLS_VOLUME,
    labels,
    selector,
)
from penstock.chart.tree import (
    ABSENT,
    ITEM,
    Compared,
    ForEach,
    If,
    Json,
    ReleaseNamespace,
    Text,
    Tree,
    Value,
    optional,
)
from penstock.core.spec.service import Object

TLS_SECRET = "gateway.tls.secretName"  # noqa: S105 - the path of a value
STORE_SECRET = "gateway.quotaStore.passwordSecretName"  # noqa: S105 - the path of a value
# Volume of the password of the quota store, and its folder in the container.
STORE_VOLUME, STORE_FOLDER = "quota-store", "/etc/penstock/quota-store"
# Name of the pods' port for clients.
_PORT_NAME = If(TLS_SECRET, "https", "http")


def gateway() -> list[Tree]:
    """The gateway's Deployment, disruption budget, Service and autoscaler."""
    spec: Object = {
        "replicas": If("gateway.autoscaling.enabled", ABSENT, Value("gateway.replicas")),
        "strategy": If(
            "gateway.hostNetwork",
            # Two gateways cannot share the node's port: the old pod stops before the new one starts.
            {"type": "Recreate"},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
        ),
    }
    pod: Object = {
        "hostNetwork": optional("gateway.hostNetwork"),
        # The default policy of such a pod is the node's DNS, which does not know Services.
        "dnsPolicy": If("gateway.hostNetwork", "ClusterFirstWithHostNet"),
    }
    return [
        deployment(
            GATEWAY,
            "gateway",
            _gateway_container(),
            probed=MANAGEMENT_PORT_NAME,
            pod=pod,
            spec=spec,
            variables=_tracing_variables(),
            volumes=[
                If(TLS_SECRET, _secret_volume(TLS_VOLUME, TLS_SECRET)),
                If(STORE_SECRET, _secret_volume(STORE_VOLUME, STORE_SECRET)),
                batch_token.volume(),
            ],
            mounts=[
                If(TLS_SECRET, _mount(TLS_VOLUME, TLS_FOLDER)),
                If(STORE_SECRET, _mount(STORE_VOLUME, STORE_FOLDER)),
                batch_token.mount(),
            ],
        ),
        disruption_budget(GATEWAY),
        _service(),
        If("gateway.autoscaling.enabled", _autoscaler()),
    ]


def _gateway_container() -> Object:
    """The gateway's command and ports; `deployment` adds the rest."""
    return {
        "command": ["penstock"],
        "args": [
            "gateway", "run", "--host=$(POD_IP)",
            Text.of("--port=", Json("gateway.port")),
            Text.of("--management-port=", Json("gateway.managementPort")),
            flag("--namespace=", "watchNamespace"),
            flag("--log-level=", "logLevel"),
            flag("--region=", "gateway.region"),
            If("gateway.requireTenants", "--require-tenants"),
            Text.of("--keys-namespace=", Value("gateway.keysNamespace")),
            If(TLS_SECRET, f"--tls-certificate={TLS_FOLDER}/tls.crt"),
            If(TLS_SECRET, f"--tls-key={TLS_FOLDER}/tls.key"),
            flag("--quota-store=", "gateway.quotaStore.url"),
            If(STORE_SECRET, f"--quota-store-password-file={STORE_FOLDER}/password"),
            If(
                "batch.enabled",
                Text.of(f"--batch-url=http://{BATCH}.", ReleaseNamespace(), f".svc:{BATCH_PORT}"),
            ),
            If("batch.enabled", f"--batch-token-file={batch_token.FILE}"),
            ForEach(
                "gateway.allowedExternalUrls", Text.of("--allowed-external-url=", Value(ITEM))
            ),
            ForEach("gateway.trustedProxies", Text.of("--trusted-proxy=", Value(ITEM))),
            Text.of("--service-account-audience=", Value("gateway.serviceAccountAudience")),
            ForEach("gateway.corsOrigins", Text.of("--cors-origin=", Value(ITEM))),
            ForEach("gateway.extraArgs", Value(ITEM)),
        ],
        "ports": [
            {"name": _PORT_NAME, "containerPort": Value("gateway.port"), "protocol": "TCP"},
            {
                "name": MANAGEMENT_PORT_NAME,
                "containerPort": Compared(
                    "gateway.managementPort", "eq", "gateway.port", f"gateway: {PORTS_REFUSED}"
                ),
                "protocol": "TCP",
            },
        ],
    }  # fmt: skip


def _secret_volume(name: str, path: str) -> Object:
    """A volume of the Secret that a value names. The kubelet renews its files."""
    return {"name": name, "secret": {"secretName": Value(path)}}


def _mount(volume: str, folder: str) -> Object:
    """The mount of a whole volume: the kubelet does not renew the files of one with subPath."""
    return {"name": volume, "mountPath": folder, "readOnly": True}


def _tracing_variables() -> list[Tree]:
    """OpenTelemetry's environment variables, set from the chart value `tracing`."""

    def variable(name: str, path: str) -> Tree:
        return {"name": name, "value": Value(path)}

    endpoint, sampler, argument = OTEL_VARIABLES
    optional_argument = If("tracing.samplerArg", variable(argument, "tracing.samplerArg"))
    return [
        If("tracing.endpoint", variable(endpoint, "tracing.endpoint")),
        If("tracing.endpoint", variable(sampler, "tracing.sampler")),
        If("tracing.endpoint", optional_argument),
    ]


def _service() -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": GATEWAY,
            "namespace": ReleaseNamespace(),
            "labels": labels(GATEWAY),
            "annotations": optional("gateway.service.annotations"),
        },
        "spec": {
            "type": Value("gateway.service.type"),
            "externalTrafficPolicy": optional("gateway.service.externalTrafficPolicy"),
            "selector": selector(GATEWAY),
            "ports": [
                {
                    "name": _PORT_NAME,
                    "port": If(TLS_SECRET, 443, 80),
                    "targetPort": _PORT_NAME,
                    "protocol": "TCP",
                }
            ],
        },
    }


def _autoscaler() -> Tree:
    target = {
        "type": "Utilization",
        "averageUtilization": Value("gateway.autoscaling.targetCpuUtilizationPercentage"),
    }
    stabilization = Value("gateway.autoscaling.scaleDownStabilizationSeconds")
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": GATEWAY, "namespace": ReleaseNamespace(), "labels": labels(GATEWAY)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": GATEWAY},
            "minReplicas": Compared(
                "gateway.autoscaling.minReplicas",
                "gt",
                "gateway.autoscaling.maxReplicas",
                f"gateway.autoscaling: {BOUNDS_REFUSED}",
            ),
            "maxReplicas": Value("gateway.autoscaling.maxReplicas"),
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            # A pod at a time: each that ends drains for up to a minute.
            "behavior": {
                "scaleDown": {
                    "stabilizationWindowSeconds": stabilization,
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                }
            },
        },
    }
