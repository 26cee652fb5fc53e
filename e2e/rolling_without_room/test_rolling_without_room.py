"""A rolling update on a node without a free GPU: it frees one if maxUnavailable allows, else rolls back."""

from collections import Counter
from pathlib import Path

import pytest
from tests.support.cluster import rollouts

from penstock.core.spec.service import Object
from penstock.demo.load import End, Load, Workload, corpus
from penstock.demo.stage import Stage, View

ROOT = Path(__file__).parents[2]
NAME = "packed"
GPUS = 2  # of the node

pytestmark = pytest.mark.e2e


def service(rolling: Object) -> Object:
    """Return a service with one GPU per engine. The node's GPUs are fake, so engines run on its CPU."""
    command = 'exec penstock-engine "${@/--device=cuda/--device=cpu}"'
    container = {"name": "engine", "command": ["bash", "-c", command, "engine"]}
    rollout = {"strategy": "Rolling", "rolling": rolling, "progressDeadline": "15s"}
    body = rollouts.service(NAME, rollout, replicas=GPUS)
    body["spec"] |= {
        "terminationGracePeriodSeconds": 18, "template": {"spec": {"containers": [container]}}
    }  # fmt: skip
    body["spec"]["resources"]["limits"]["nvidia.com/gpu"] = 1
    return body


async def test_a_rolling_update_frees_a_gpu_or_rolls_back(stage: Stage) -> None:
    stage.apply(service({"maxSurge": 1, "maxUnavailable": 0}))
    # The status lags behind the pods, and stableRevision is set only in phase Stable.
    await stage.wait_until(
        lambda view: (
            view.ready == GPUS and view.status.get("rollout", {}).get("phase") == "Stable"
        ),
        NAME, within_s=120, what="both engines",
    )  # fmt: skip
    first = (await stage.view(NAME)).status["stableRevision"]
    fewest = GPUS

    def has_ended(phase: str, revision: str) -> bool:
        def check(view: View) -> bool:
            nonlocal fewest
            fewest = min(fewest, view.ready)
            status = view.status
            stable = status["stableRevision"]
            return (status["rollout"]["phase"], stable == first) == (phase, revision == "first")

        return check

    workload = Workload(NAME, corpus(ROOT), prompt_words=30, max_tokens=8, seed=1, think_s=0.5)
    async with Load(stage.cluster.gateway_url, workload) as load:
        load.set_clients(2)
        stage.patch(NAME, {"engine": {"seed": 1}})
        await stage.wait_until(
            has_ended("Rejected", "first"), NAME, within_s=90, what="there is no room"
        )
        assert fewest == GPUS
        reason = (await stage.view(NAME)).status["rollout"]["rejected"]["message"]
        assert "Insufficient nvidia.com/gpu" in reason
        rolling = {"rolling": {"maxUnavailable": 1}, "progressDeadline": "240s"}
        stage.patch(NAME, {"engine": {"seed": 2}, "rollout": rolling})
        await stage.wait_until(
            has_ended("Stable", "another"), NAME, within_s=240, what="room was made"
        )
        await load.finish()
    assert fewest == GPUS - 1
    assert Counter(outcome.end for outcome in load.outcomes).keys() == {End.DONE}
