"""An engine that fills its disk is evicted by the kubelet, and one by a client within the budgets."""

import json

from benchmarks.real_node.lab import Lab
from benchmarks.real_node.two_engines import (
    READY_S,
    check_outcomes,
    condition_with,
    engines,
    name_of,
    requests,
    start,
)

from penstock.demo.kubectl import KubectlError

NAME = "full-disk"
LIMIT_MIB = 64
TMP = {"name": "tmp", "emptyDir": {"sizeLimit": f"{LIMIT_MIB}Mi"}}
FILL = f"open('/tmp/fill', 'wb').write(bytes({2 * LIMIT_MIB} << 20))"


async def run(lab: Lab) -> dict[str, object]:
    async with lab.namespace("disk") as namespace:
        await start(lab, NAME, namespace, template={"spec": {"volumes": [TMP]}})
        victim = name_of(engines(lab, NAME, namespace)[0])
        async with requests(lab, NAME) as load:
            lab.kubectl("exec", "-n", namespace, victim, "-c", "engine", "--", "python", "-c", FILL)
            seen = await condition_with(lab, NAME, namespace, "WorkloadReady", "EngineLost")
            recovered_s = await lab.stage.wait_for_engines(
                NAME, 2, within_s=READY_S, namespace=namespace
            )
        assert victim in seen["message"], seen
        assert "Evicted" in seen["message"], seen
        figures = check_outcomes(load, may_cut=True)
        status = (await lab.stage.view(NAME, namespace)).status
        assert (status["replicas"], status["readyReplicas"]) == (2, 2), status
        ended = [pod.name for pod in (await lab.stage.view(NAME, namespace)).pods if pod.is_over]
        assert ended == [victim], f"ended pods that are left: {ended}"
        return figures | {
            "message": seen["message"],
            "replaced_s": round(recovered_s, 1),
            **await _evict_by_api(lab, namespace),
        }


async def _evict_by_api(lab: Lab, namespace: str) -> dict[str, object]:
    """Ask for the eviction of both engines at once: the budget allows one, and no request fails."""
    running = engines(lab, NAME, namespace)
    async with requests(lab, NAME) as load:
        first, second = (_evict(lab, namespace, name_of(each)) for each in running)
        replaced_s = await lab.stage.wait_until(
            lambda view: view.ready == 2 and not any(p.name == name_of(running[0]) for p in view.pods),
            NAME, within_s=READY_S, what="the evicted engine is replaced", namespace=namespace,
        )  # fmt: skip
    assert first == "", first
    assert "disruption budget" in second, second or "the second eviction was allowed"
    figures = check_outcomes(load)
    return {
        "requests_during_eviction": figures["requests"],
        "evicted_engine_replaced_s": round(replaced_s, 1),
        "second_eviction": second,
    }


def _evict(lab: Lab, namespace: str, pod: str) -> str:
    """Create an Eviction. Returns the API server's refusal; empty if it was allowed."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    try:
        lab.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    except KubectlError as error:
        return str(error)
    return ""
