"""Metrics that real processes export: all names, and series of services by the leader alone."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp.test_utils import unused_port
from prometheus_client.parser import text_string_to_metric_families

from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.demo.stage import poll_until
from penstock.observability.metrics import gateway, operator
from penstock.observability.metrics.operator_labels import VERB

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@asynccontextmanager
async def process(cluster, *command, flag="--port"):
    """A process of Penstock. Gives the port of its metrics, which the flag sets."""
    port = unused_port()
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", *command, "--host", "127.0.0.1", flag, str(port),
        env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield port
    finally:
        made.terminate()
        await made.wait()


async def families(port):
    """Metric families by name as exposed; empty while nothing listens."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/metrics") as answer,
        ):
            text = await answer.text()
    except aiohttp.ClientConnectorError:
        return {}
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
    }


def total(found, spec, **labels):
    samples = found[spec.name].samples if spec.name in found else []
    return sum(s.value for s in samples if labels.items() <= s.labels.items())


async def test_operator_and_gateway_export_their_lists(cluster, kube, namespace):
    gateway_run = ["gateway", "run", "--namespace", namespace, "--port", str(unused_port())]
    run = ["operator", "run", "--engine-image", "penstock", "--lease-namespace", namespace]
    body = {
        "apiVersion": "serving.penstock.dev/v1alpha1", "kind": "InferenceService",
        "metadata": {"name": "s", "namespace": namespace},
        "spec": {"model": {"uri": "pvc://nowhere/x"}},
    }  # fmt: skip
    await kube.create(INFERENCE_SERVICES, namespace, body)
    async with (
        process(cluster, *run) as one,
        process(cluster, *run) as two,
        process(cluster, *gateway_run, flag="--management-port") as third,
    ):

        async def leaders():
            both = [await families(one), await families(two)]
            ready = {"service": f"{namespace}/s", "type": "Ready"}
            return [total(found, operator.CONDITION_STATUS, **ready) for found in both if found]

        async def has_led():
            counts = await leaders()
            return len(counts) == 2 and any(counts)

        async def of_the_leader():
            return max(await families(one), await families(two), key=len)

        async def has_reconciled():
            return total(await of_the_leader(), operator.RECONCILES, outcome="ok") >= 1

        await poll_until(has_led, within_s=60, what="series of the service")
        assert 0 in await leaders()
        # The condition is written before its reconcile ends and is counted.
        await poll_until(has_reconciled, within_s=60, what="a reconcile that succeeded")
        found = await of_the_leader()
        assert {spec.name for spec in operator.PROCESS} <= found.keys()
        assert found.keys() <= {spec.name for spec in operator.METRICS}
        assert total(found, operator.LEADING) == 1
        assert total(found, operator.API_REQUESTS, verb="watch", code="200") >= 4
        assert total(found, operator.API_REQUESTS, verb="update", code="200") >= 1  # the Lease
        verbs = {sample.labels["verb"] for sample in found[operator.API_REQUESTS.name].samples}
        assert verbs <= set(VERB.values)
        assert total(found, operator.CREDENTIAL_EXPIRY, credential="ca") > 1.7e9

        async def is_synced():
            return bool(total(await families(third), gateway.SNAPSHOTS))

        await poll_until(is_synced, within_s=30, what="the gateway's first snapshot")
        found = await families(third)
        assert found.keys() == {spec.name for spec in gateway.METRICS}
        assert 0 < total(found, gateway.SNAPSHOT_AGE_S) < 100
        samples = found[gateway.ENDPOINTS.name].samples
        assert {sample.labels["service"] for sample in samples} == {f"{namespace}/s"}
