"""Rights of users with the roles view and edit on Penstock's kinds, as a real API server decides them."""

from typing import Any

import pytest
from tests.chart.value_sets import IMAGE

from penstock.chart.names import USER_EDIT_ROLE, USER_VIEW_ROLE
from penstock.chart.rendering.install import install_manifests
from penstock.chart.rendering.templates import PLURALS
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import ROLE_BINDINGS, Resource
from penstock.core.spec.service import GROUP
from penstock.demo.stage import poll_until

pytestmark = pytest.mark.cluster

REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)
READ = {(verb, kind) for verb in ("get", "list", "watch") for kind in PLURALS}
WRITE = {
    (verb, kind)
    for verb in ("create", "update", "patch", "delete", "deletecollection")
    for kind in PLURALS
}
SCALE = {("patch", "inferenceservices/scale"), ("update", "inferenceservices/scale")}
STATUS = {(verb, f"{kind}/status") for verb in ("update", "patch") for kind in PLURALS}


async def may(kube: Kube, user: str, namespace: str, verb: str, resource: str) -> bool:
    kind, _, sub = resource.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": GROUP, "resource": kind}
    review = {"spec": {"user": user, "resourceAttributes": asked | {"subresource": sub}}}
    answer = await kube.create(REVIEWS, None, review)
    return bool(answer["status"]["allowed"])


async def test_users_have_their_role_on_the_kinds_too(kube: Kube, namespace: str) -> None:
    for role in install_manifests(IMAGE):
        if role["kind"] == "ClusterRole" and role["metadata"]["name"] in (
            USER_VIEW_ROLE,
            USER_EDIT_ROLE,
        ):
            await kube.apply(role, manager="test")
    for role_name in ("view", "edit"):
        binding: dict[str, Any] = {
            "metadata": {"name": role_name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role_name,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role_name}
            ],
        }  # fmt: skip
        await kube.create(ROLE_BINDINGS, namespace, binding)

    async def rights(user: str) -> set[tuple[str, str]]:
        asked = READ | WRITE | SCALE | STATUS
        return {each for each in asked if await may(kube, user, namespace, *each)}

    async def is_aggregated() -> bool:
        return await rights("view") == READ and await rights("edit") == READ | WRITE | SCALE

    await poll_until(is_aggregated, within_s=30, what="the rights of view and edit")
    assert not await may(kube, "edit", "default", "get", "inferenceservices")


def test_users_read_tenants_and_write_none() -> None:
    roles = {role["metadata"]["name"]: role for role in install_manifests(IMAGE)}
    rights = {
        (verb, resource)
        for name in (USER_VIEW_ROLE, USER_EDIT_ROLE)
        for rule in roles[name]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if resource.startswith("tenants")
    }
    assert rights == {
        (verb, kind) for verb in ("get", "list", "watch") for kind in ("tenants", "tenants/status")
    }
