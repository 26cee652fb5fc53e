"""Tenants with API keys in a cluster."""

import re

from tests.support.cluster.penstock_command import penstock

from penstock.clients.kubernetes.client import Object
from penstock.demo.stage import Stage


def tenant_manifest(name: str, **spec: object) -> Object:
    """A Tenant with keys of its own that may use the models of the namespace default."""
    identity = {"name": "keys", "type": "APIKey", "apiKey": {"secretName": name}}
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {"identities": [identity], "access": [{"namespace": "default"}]} | spec,
    }


async def create_key(stage: Stage, tenant: str) -> str:
    """Create an API key of a tenant."""
    printed = await penstock(stage, "keys", "create", tenant, "--name", "test")
    found = re.search(r"^psk_\S+$", printed, re.MULTILINE)
    assert found, "no key"
    return found[0]
