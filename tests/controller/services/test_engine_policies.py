"""NetworkPolicies of engines at a real API server."""

import asyncio

import pytest

from penstock.chart.access.rights import OPERATOR_RULES
from penstock.chart.names import GATEWAY, OPERATOR
from penstock.clients.kubernetes.client import Kube, api_client
from penstock.clients.kubernetes.kubeconfig import load_configuration
from penstock.clients.kubernetes.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NETWORK_POLICIES,
)
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.process.settings import Settings
from penstock.controller.services.engine_policies import EnginePolicies
from penstock.core.manifests.network import ENGINES_POLICY_NAME
from penstock.demo.stage import poll_until
from penstock.errors import Forbidden, NotFound

pytestmark = pytest.mark.cluster

PROMETHEUS = {"podSelector": {"matchLabels": {"app": "prometheus"}}, "namespaceSelector": {}}
HOME = {"matchLabels": {"kubernetes.io/metadata.name": "penstock-system"}}
SPEC = {
    "podSelector": {
        "matchLabels": {
            "app.kubernetes.io/managed-by": "penstock",
            "serving.penstock.dev/role": "serve",
        }
    },
    "policyTypes": ["Ingress"],
    "ingress": [
        {
            "ports": [{"port": 8000, "protocol": "TCP"}],
            "from": [
                {
                    "namespaceSelector": HOME,
                    "podSelector": {"matchLabels": {"app.kubernetes.io/name": GATEWAY}},
                },
                {
                    "namespaceSelector": HOME,
                    "podSelector": {"matchLabels": {"app.kubernetes.io/name": OPERATOR}},
                },
                PROMETHEUS,
                {
                    "podSelector": {
                        "matchLabels": {
                            "app.kubernetes.io/managed-by": "penstock",
                            "serving.penstock.dev/role": "evaluation",
                        }
                    }
                },
            ],
        },
        {
            "ports": [{"port": 5557, "protocol": "TCP"}, {"port": 5558, "protocol": "TCP"}],
            "from": [
                {
                    "namespaceSelector": HOME,
                    "podSelector": {"matchLabels": {"app.kubernetes.io/name": GATEWAY}},
                },
            ],
        },
    ],
}


def _policy_rules():
    """The operator's rights on NetworkPolicies."""
    return [rule for rule in OPERATOR_RULES if "networkpolicies" in rule["resources"]]


class Stand:
    """An operator's policies. services: what it has last watched; None: nothing yet.

    operator: its client; None: kube, the administrator's.
    """

    def __init__(self, kube, engines_from=(PROMETHEUS,), operator=None):
        self.kube, self.services = kube, {}
        settings = Settings(
            "me", "penstock", "penstock-system", "127.0.0.1", 0, engines_from=engines_from
        )
        self.policies = EnginePolicies(
            operator or kube,
            settings,
            services=lambda: self.services,
            failures=Failures(OperatorMetrics()),
        )

    async def spec(self, namespace):
        try:
            found = await self.kube.get(NETWORK_POLICIES, namespace, ENGINES_POLICY_NAME)
        except NotFound:
            return None
        return found["spec"]

    async def until(self, namespace, spec):
        """Correct policies until that of the namespace is this one; None: until there is none."""

        async def holds():
            await self.policies.update()
            return await self.spec(namespace) == spec

        await poll_until(holds, within_s=30, what="the policy")


@pytest.fixture
async def stand(kube):
    made = Stand(kube)
    running = asyncio.create_task(made.policies.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def operator(cluster, kube):
    """Client of a user with no other rights than the operator's on NetworkPolicies."""
    name, api_group = "policies", "rbac.authorization.k8s.io"
    user = {"apiGroup": api_group, "kind": "User", "name": name}
    role = {"metadata": {"name": name}, "rules": _policy_rules()}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": name},
        "subjects": [user],
    }
    await kube.create(CLUSTER_ROLES, None, role)
    await kube.create(CLUSTER_ROLE_BINDINGS, None, binding)
    api = api_client(await load_configuration(cluster.kubeconfig), name)
    api.set_default_header("Impersonate-User", name)
    async with Kube(api) as client:
        yield client
    await kube.delete(CLUSTER_ROLE_BINDINGS, None, name)
    await kube.delete(CLUSTER_ROLES, None, name)


async def test_the_operator_may_write_the_policies_of_engines_and_no_others(
    kube, operator, namespace
):
    own = Stand(kube, operator=operator)
    running = asyncio.create_task(own.policies.run())
    own.services = {(namespace, "a"): {}}
    await own.until(namespace, SPEC)
    opened = {"spec": {"ingress": [{}]}}
    await kube.merge(NETWORK_POLICIES, namespace, ENGINES_POLICY_NAME, opened, manager="user")
    await own.until(namespace, SPEC)
    own.services = {}
    await own.until(namespace, None)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    foreign = {"metadata": {"name": "of-a-user"}, "spec": {"podSelector": {}}}
    await kube.create(NETWORK_POLICIES, namespace, foreign)
    with pytest.raises(Forbidden):
        await operator.merge(NETWORK_POLICIES, namespace, "of-a-user", opened, manager="operator")
    with pytest.raises(Forbidden):
        await operator.delete(NETWORK_POLICIES, namespace, "of-a-user")


async def test_a_namespace_has_a_policy_as_long_as_it_has_services(stand, new_namespace):
    one, other = await new_namespace(), await new_namespace()
    stand.services = {(one, "a"): {}, (one, "b"): {}, (other, "c"): {}}
    await stand.until(one, SPEC)
    await stand.until(other, SPEC)
    stand.services = {(one, "b"): {}}
    await stand.until(other, None)
    assert await stand.spec(one) == SPEC


async def test_a_policy_that_is_changed_or_deleted_is_restored(stand, kube, namespace):
    stand.services = {(namespace, "a"): {}}
    await stand.until(namespace, SPEC)
    opened = {"spec": {"ingress": [{}]}}
    await kube.merge(NETWORK_POLICIES, namespace, ENGINES_POLICY_NAME, opened, manager="user")
    await stand.until(namespace, SPEC)
    await kube.delete(NETWORK_POLICIES, namespace, ENGINES_POLICY_NAME)
    await stand.until(namespace, SPEC)


async def test_nothing_is_deleted_before_services_have_been_listed(stand, namespace):
    stand.services = {(namespace, "a"): {}}
    await stand.until(namespace, SPEC)
    stand.services = None
    await stand.policies.update()
    assert await stand.spec(namespace) == SPEC


async def test_without_the_restriction_policies_are_deleted(stand, kube, namespace):
    stand.services = {(namespace, "a"): {}}
    await stand.until(namespace, SPEC)
    stand.services = None  # the former leader has ended
    unrestricted = Stand(kube, engines_from=None)
    unrestricted.services = {(namespace, "a"): {}}
    running = asyncio.create_task(unrestricted.policies.run())
    await unrestricted.until(namespace, None)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_namespace_that_refuses_its_policy_stops_no_other(stand, namespace):
    stand.services = {("absent", "a"): {}, (namespace, "a"): {}}
    await stand.until(namespace, SPEC)
