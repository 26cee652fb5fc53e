"""The batch server's Deployment, Service and claim."""

from penstock.chart.component import batch_token
from penstock.chart.component.deployment import SCANNER_EXCEPTIONS, deployment, flag
from penstock.chart.names import (
    BATCH,
    BATCH_MANAGEMENT_PORT,
    BATCH_PORT,
    BATCH_STORE_FOLDER,
    BATCH_STORE_VOLUME,
    GATEWAY,
    GATEWAY_CA_FOLDER,
    GATEWAY_CA_VOLUME,
    MANAGEMENT_PORT_NAME,
    labels,
    selector,
)
from penstock.chart.tree import (
    ABSENT,
    ITEM,
    ForEach,
    If,
    ReleaseNamespace,
    Text,
    Tree,
    Value,
    optional,
)
from penstock.core.manifests import restricted
from penstock.core.spec.service import Object

_BUCKET, _TLS_SECRET = "batch.storage.s3.url", "gateway.tls.secretName"
_OWN_CLAIM = "batch.storage.claim.existingClaim"
_CA_FILE = "ca.crt"


def batch() -> list[Tree]:
    """The Deployment, the Service and the claim, if the batch server is enabled."""
    claim = If(_BUCKET, ABSENT, If(_OWN_CLAIM, ABSENT, _claim()))
    return [If("batch.enabled", each) for each in (claim, _deployment(), _service())]


def _deployment() -> Tree:
    # The group may write to a new volume, which belongs to root.
    group = {"fsGroup": restricted.POD["runAsUser"], "fsGroupChangePolicy": "OnRootMismatch"}
    return deployment(
        BATCH,
        "batch",
        _container(),
        probed=MANAGEMENT_PORT_NAME,
        pod={
            "automountServiceAccountToken": False,
            "securityContext": restricted.POD | group,
        },
        # One pod leads, and a volume may be at one node alone: the old pod ends before the new one starts.
        spec={"replicas": Value("batch.replicas"), "strategy": {"type": "Recreate"}},
        volumes=[batch_token.volume(), If(_TLS_SECRET, _ca_volume()), If(_BUCKET, ABSENT, _store_volume())],
        mounts=[
            batch_token.mount(),
            If(
                _TLS_SECRET,
                {"name": GATEWAY_CA_VOLUME, "mountPath": GATEWAY_CA_FOLDER, "readOnly": True},
            ),
            If(_BUCKET, ABSENT, {"name": BATCH_STORE_VOLUME, "mountPath": BATCH_STORE_FOLDER}),
        ],
        annotations={"checkov.io/skip1": SCANNER_EXCEPTIONS["checkov.io/skip1"]},
    )  # fmt: skip


def _container() -> Object:
    """The command, ports and variables; `deployment` adds the rest."""
    scheme = If(_TLS_SECRET, "https", "http")
    probe = {"path": "/healthz", "port": MANAGEMENT_PORT_NAME, "scheme": "HTTP"}
    return {
        "command": ["penstock"],
        "args": [
            "batch", "run", "--host=$(POD_IP)",
            f"--port={BATCH_PORT}", f"--management-port={BATCH_MANAGEMENT_PORT}",
            Text.of("--gateway-url=", scheme, f"://{GATEWAY}.", ReleaseNamespace(), ".svc"),
            If(_TLS_SECRET, f"--gateway-ca-file={GATEWAY_CA_FOLDER}/{_CA_FILE}"),
            f"--token-file={batch_token.FILE}",
            Text.of("--store=", If(_BUCKET, Value(_BUCKET), BATCH_STORE_FOLDER)),
            flag("--log-level=", "logLevel"),
            ForEach("batch.extraArgs", Value(ITEM)),
        ],
        "ports": [
            {"name": "http", "containerPort": BATCH_PORT, "protocol": "TCP"},
            {
                "name": MANAGEMENT_PORT_NAME,
                "containerPort": BATCH_MANAGEMENT_PORT,
                "protocol": "TCP",
            },
        ],
        "envFrom": If(
            "batch.storage.s3.secretName",
            [{"secretRef": {"name": Value("batch.storage.s3.secretName")}}],
        ),
        # The probe asks for health: a pod is ready only once it leads and has read all records of its store.
        "startupProbe": {
            "httpGet": probe, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 60,
        },
    }  # fmt: skip


def _ca_volume() -> Object:
    """The authority of the gateway's certificate, which cert-manager puts beside it, without its key."""
    items = [{"key": _CA_FILE, "path": _CA_FILE}]
    secret = {"secretName": Value(_TLS_SECRET), "items": items, "optional": True}
    return {"name": GATEWAY_CA_VOLUME, "secret": secret}


def _store_volume() -> Object:
    name = If(_OWN_CLAIM, Value(_OWN_CLAIM), BATCH)
    return {"name": BATCH_STORE_VOLUME, "persistentVolumeClaim": {"claimName": name}}


def _claim() -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": BATCH,
            "namespace": ReleaseNamespace(),
            "labels": labels(BATCH),
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": Value("batch.storage.claim.size")}},
            "storageClassName": optional("batch.storage.claim.storageClassName"),
        },
    }


def _service() -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": BATCH, "namespace": ReleaseNamespace(), "labels": labels(BATCH)},
        "spec": {
            "selector": selector(BATCH),
            "ports": [
                {"name": "http", "port": BATCH_PORT, "targetPort": "http", "protocol": "TCP"}
            ],
        },
    }
