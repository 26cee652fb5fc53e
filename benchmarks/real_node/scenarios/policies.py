"""Compares the documented table of connections with those that are possible, with each set of values."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.real_node import connection_pods
from benchmarks.real_node.connection_matrix import find_listeners, try_connections, wrong_cells
from benchmarks.real_node.connection_pods import ProbePod
from benchmarks.real_node.lab import VALUES, Lab, chart_values
from tests.support.cluster.helm import CHART
from tests.support.cluster.manifests import service_manifest

from penstock.chart.connections.matrix import (
    DESTINATIONS,
    SOURCES,
    Connection,
    Place,
    default_connections,
)
from penstock.chart.connections.variants import VARIANTS, Site
from penstock.clients.kubernetes.resources import NETWORK_POLICIES
from penstock.clients.machine.clock import monotonic
from penstock.core.manifests.network import ENGINES_POLICY_NAME
from penstock.demo.stage import poll_until
from penstock.errors import NotFound
from penstock.local.kubelet.addresses import node_address
from penstock.local.record import API_SERVICE, DNS_SERVICE

SERVICE = "connections"
# Network plugins follow a change of policies and pods after some seconds.
SETTLED_WITHIN_S = 120.0
POLICY_WITHIN_S = 60.0


async def run(lab: Lab) -> dict[str, object]:
    """Measure the table with default values, then each variant, and restore the installation's values."""
    async with lab.namespace("connections") as services:
        places = connection_pods.namespaces(services)
        try:
            await _upgrade(lab, {})  # those of the installation allow more
            return await _measure(lab, places)
        finally:
            connection_pods.remove(lab, places)
            await _upgrade(lab, chart_values(lab.cluster))


async def _measure(lab: Lab, places: Mapping[Place, str]) -> dict[str, object]:
    services = places["services"]
    lab.stage.apply(service_manifest(SERVICE, {}), namespace=services)
    created_s = await poll_until(
        lambda: _has_policy(lab, services), within_s=POLICY_WITHIN_S, what="a policy of engines"
    )
    probes = await asyncio.to_thread(connection_pods.start, lab, places)
    await lab.stage.wait_until_ready(SERVICE, within_s=300, namespace=services)
    figures: dict[str, object] = {"policy_s": round(created_s, 1)}
    figures["default_values"] = await _compare(lab, places, probes, default_connections())
    figures["policy_restored_s"] = round(await _restore_time_s(lab, services), 1)
    site = _site(lab, places)
    for name, variant in VARIANTS.items():
        values, policies = variant.values(site), variant.policies(site)
        if values:
            await _upgrade(lab, values)
        if policies:
            lab.stage.apply(*policies)
        try:
            figures[name] = await _compare(lab, places, probes, variant.connections())
        finally:
            if values:
                await _upgrade(lab, {})
            for policy in policies:
                lab.kubectl("delete", "networkpolicy", "-n", services, policy["metadata"]["name"])
    figures["default_values_again"] = await _compare(lab, places, probes, default_connections())
    return figures


async def _compare(
    lab: Lab,
    places: Mapping[Place, str],
    probes: Sequence[ProbePod],
    allowed: frozenset[Connection],
) -> dict[str, object]:
    """Compare until two comparisons in a row find no difference. Raises AssertionError with the last ones."""
    started_s, num_right, wrong = monotonic(), 0, ["nothing was tried"]
    while num_right < 2:
        listeners = find_listeners(lab, places)
        attempts = await try_connections(lab, places, probes, listeners)
        wrong = wrong_cells(attempts, allowed)
        num_right = 0 if wrong else num_right + 1
        if wrong and monotonic() - started_s > SETTLED_WITHIN_S:
            (lab.out / "connections.json").write_text(
                json.dumps(attempts, default=asdict, indent=1)
            )
            raise AssertionError(f"{len(wrong)} wrong connections: {'; '.join(wrong)}")
    num_cells = len(SOURCES) * len(DESTINATIONS)
    return {
        "cells": num_cells,
        "allowed": len(allowed),
        "denied": num_cells - len(allowed),
        "connections": len(attempts),
        "seconds": round(monotonic() - started_s, 1),
    }


async def _has_policy(lab: Lab, namespace: str) -> bool:
    try:
        await lab.kube.get(NETWORK_POLICIES, namespace, ENGINES_POLICY_NAME)
    except NotFound:
        return False
    return True


async def _restore_time_s(lab: Lab, namespace: str) -> float:
    """Delete the policy of engines, and return the seconds after which the operator has restored it."""
    lab.kubectl("delete", "networkpolicy", "-n", namespace, ENGINES_POLICY_NAME)
    return await poll_until(
        lambda: _has_policy(lab, namespace), within_s=POLICY_WITHIN_S, what="the policy restored"
    )


async def _upgrade(lab: Lab, values: Mapping[str, object]) -> None:
    """Give the release these values, and the defaults of all others that have one."""
    file = lab.out / "values-of-connections.json"
    file.write_text(json.dumps({**VALUES, **values}))
    await lab.helm("upgrade", CHART, "--reset-values", f"--values={file}")


def _site(lab: Lab, places: Mapping[Place, str]) -> Site:
    cluster = lab.cluster
    return Site(
        namespaces=places,
        api_server=(cluster.address, cluster.service_address(API_SERVICE)),
        dns=(cluster.address, cluster.service_address(DNS_SERVICE)),
        nodes=[node_address(cluster.network, index) for index in range(cluster.num_nodes)],
        host=cluster.address,
    )
