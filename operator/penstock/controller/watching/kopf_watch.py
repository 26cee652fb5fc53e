"""Watches InferenceServices with Kopf."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import kopf
from kubernetes.aio import client

from penstock.api.inferenceservice.kind import PLURAL
from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key
from penstock.core.spec.service import GROUP, VERSION

# Called with the key and the body of a service that was added, changed or deleted, and whether it is gone.
ServiceChanged = Callable[[Key, Object, bool], None]


async def start(
    configuration: client.Configuration, namespace: str | None, changed: ServiceChanged
) -> Collection[asyncio.Task[None]]:
    """Start Kopf's tasks. Returns them, for `kopf.run_tasks`.

    namespace: None for all namespaces. Kopf replaces the handlers of SIGTERM and SIGINT.
    """
    return await kopf.spawn_tasks(
        registry=_registry(configuration, changed),
        settings=_settings(namespace),
        clusterwide=namespace is None,
        namespaces=[namespace] if namespace else [],
        standalone=True,
    )


def _registry(
    configuration: client.Configuration, changed: ServiceChanged
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await _connection(configuration)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def service(
        event: kopf.RawEvent, namespace: str | None, name: str, body: kopf.Body, **_: Any
    ) -> None:
        changed((namespace or "", name), dict(body), event["type"] == "DELETED")

    return registry


async def _connection(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """Return the operator's credentials. Kopf calls this again when the API server refuses them."""
    await configuration.auth_settings()  # reads a rotated token
    scheme, _, token = configuration.api_key.get("BearerToken", "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


def _settings(namespace: str | None) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # Rights in one namespace do not include watching CRDs: they must exist when the operator starts.
    settings.scanning.disabled = namespace is not None
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    settings.process.ultimate_exiting_timeout = 10
    return settings
