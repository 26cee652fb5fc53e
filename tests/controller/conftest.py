"""Fixtures: a service at a real API server without nodes, and admission policies that refuse objects."""

import asyncio
from functools import partial

import pytest
from tests.controller import version_skew
from tests.controller.disruption_budgets import listed_budgets

from penstock.api.generation.crdgen import inference_service_crd
from penstock.clients.kubernetes.resources import DEPLOYMENTS, INFERENCE_SERVICES, PODS, Resource
from penstock.controller.names.model_names import ModelNames
from penstock.controller.services.reconciler import Reconciler
from penstock.core.rollout import commands
from penstock.core.spec.service import ROLE_LABEL, SERVE
from penstock.errors import Forbidden, KubeError, NotFound, Rejected

POLICIES = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
)
BINDINGS = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
)
NAME = "chat"


class Stand:
    """A service and its reconciler. Pod statuses are written by `until`, as there are no nodes.

    services, names: as the operator's watch reports them. gone: keys that the reconciler reported as deleted.
    """

    def __init__(self, kube, namespace):
        self.kube, self.namespace, self.key = kube, namespace, (namespace, NAME)
        self.services, self.gone, self.names = {}, [], ModelNames()
        self.error = None
        self.reconciler = self.make_reconciler(kube)

    def make_reconciler(self, kube, image="penstock", **options):
        return Reconciler(
            kube, image, services=lambda: self.services, names=self.names,
            budgets=listed_budgets(kube), scaling=lambda *_: None,
            judgement=lambda *_: None, applied_generations=lambda _: {},
            gateway_url="", gone=self.gone.append, **options,
        )  # fmt: skip

    async def create(self, **spec):
        body = {
            "apiVersion": "serving.penstock.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": NAME, "namespace": self.namespace},
            "spec": {"model": {"uri": "pvc://none/tiny"}, **spec},
        }
        return await self.kube.create(INFERENCE_SERVICES, self.namespace, body)

    async def body(self):
        return await self.kube.get(INFERENCE_SERVICES, *self.key)

    async def status(self):
        return (await self.body()).get("status", {})

    async def condition(self, kind):
        found = {c["type"]: c for c in (await self.status()).get("conditions", [])}[kind]
        return found["status"], found["reason"]

    async def change(self, **spec):
        await self.kube.merge(INFERENCE_SERVICES, *self.key, {"spec": spec}, manager="test")

    async def order(self, action, revision):
        text = commands.format_command(action, revision, "n1")
        patch = {"metadata": {"annotations": {commands.ANNOTATION: text}}}
        await self.kube.merge(INFERENCE_SERVICES, *self.key, patch, manager="test")

    async def pods(self):
        return (await self.kube.list(PODS, self.namespace))[0]

    async def deployment_uids(self):
        found, _ = await self.kube.list(DEPLOYMENTS, self.namespace)
        return {each["metadata"]["uid"] for each in found}

    async def step(self):
        """Reconcile once. A KubeError is stored in `error`."""
        self.error = None
        try:
            return await self.reconciler.reconcile(self.key)
        except KubeError as error:
            self.error = error
            return None

    async def until(self, holds):
        """Reconcile and make pods ready until `holds` returns true."""
        for _ in range(150):
            await self.step()
            for pod in await self.pods():
                await self._bring_up(pod)
            if await holds():
                return
            await asyncio.sleep(0.1)
        raise AssertionError((await self.status(), self.error))

    async def until_phase(self, phase):
        async def is_there():
            return (await self.status()).get("rollout", {}).get("phase") == phase

        await self.until(is_there)

    async def _bring_up(self, pod):
        status = {"phase": "Succeeded"}
        if pod["metadata"]["labels"].get(ROLE_LABEL) == SERVE:
            now = pod["metadata"]["creationTimestamp"]
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
            status = {"phase": "Running", "podIP": "127.9.9.9", "conditions": [ready]}
        if pod["status"].get("phase") == status["phase"]:
            return
        try:
            await self.kube.merge(
                PODS, self.namespace, pod["metadata"]["name"], {"status": status},
                manager="test", sub="status",
            )  # fmt: skip
        except NotFound:
            return


@pytest.fixture
def stand(kube, namespace):
    return Stand(kube, namespace)


@pytest.fixture
def new_stand(kube, new_namespace):
    """Function that makes a stand in a namespace of its own."""

    async def make():
        return Stand(kube, await new_namespace())

    return make


@pytest.fixture
async def crd(stand):
    """Function that applies a CRD. This version's is back after the test."""
    yield partial(version_skew.apply_crd, stand)
    await version_skew.apply_crd(stand, inference_service_crd(), is_newer=False)


@pytest.fixture
def newer_operator(monkeypatch):
    """Function that makes the operator know the further field."""
    return partial(version_skew.upgrade_operator, monkeypatch)


class Policy:
    """Admission policy that refuses objects unless a CEL expression holds. probe: an object it refuses."""

    def __init__(self, kube, name, probe):
        self._kube, self._name, self._probe = kube, name, probe

    async def begin(self, plural, expression, reason):
        group, _, version = self._probe["apiVersion"].rpartition("/")
        namespaces = {"kubernetes.io/metadata.name": self._probe["metadata"]["namespace"]}
        rule = {
            "apiGroups": [group], "apiVersions": [version], "resources": [plural],
            "operations": ["CREATE", "UPDATE"],
        }  # fmt: skip
        spec = {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": namespaces}, "resourceRules": [rule],
            },
            "validations": [{"expression": expression, "message": "not here", "reason": reason}],
        }  # fmt: skip
        await self._kube.create(POLICIES, None, {"metadata": {"name": self._name}, "spec": spec})
        bound = {"policyName": self._name, "validationActions": ["Deny"]}
        await self._kube.create(BINDINGS, None, {"metadata": {"name": self._name}, "spec": bound})
        await self._until(refused=True)

    async def remove(self):
        await self.delete()
        await self._until(refused=False)

    async def delete(self):
        await self._kube.delete(BINDINGS, None, self._name)
        await self._kube.delete(POLICIES, None, self._name)

    async def _until(self, *, refused):
        """Wait until the probe is refused, or admitted: policies take effect with a delay."""
        for _ in range(300):
            try:
                await self._kube.apply(self._probe, manager="probe", dry_run=True)
                is_refused = False
            except (Rejected, Forbidden):
                is_refused = True
            if is_refused == refused:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the policy does not change what is admitted")


@pytest.fixture
async def refuse(kube, namespace):
    """Function that creates a Policy and waits until it takes effect."""
    made = []

    async def begin(plural, expression, probe, reason="Invalid"):
        probe["metadata"] |= {"name": "probe", "namespace": namespace}
        policy = Policy(kube, f"{namespace}-{len(made)}", probe)
        made.append(policy)
        await policy.begin(plural, expression, reason)
        return policy

    yield begin
    for policy in made:
        await policy.delete()
