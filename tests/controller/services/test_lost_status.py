"""A status that is lost changes neither traffic nor pods, in any phase of a rollout."""

import pytest

from penstock.clients.kubernetes.resources import CONTROLLER_REVISIONS, INFERENCE_SERVICES
from penstock.core.observed.state_record import ANNOTATION, RESULTS, STATE_FIELDS

pytestmark = pytest.mark.cluster

MANUAL = {"strategy": "BlueGreen", "blueGreen": {"promotion": "Manual"}}
COPIED = {"strategy": "Canary", "canary": {"mirror": {"percent": 10}}}
# Rollout settings, and the phase in which the status is lost.
MOMENTS = [
    ({"strategy": "Canary"}, "Starting"),
    ({"strategy": "Canary"}, "Judging"),
    (COPIED, "Mirroring"),
    (MANUAL, "Waiting"),
    ({"strategy": "BlueGreen"}, "Promoting"),
    ({"strategy": "Rolling"}, "Replacing"),
    ({"strategy": "Recreate"}, "Starting"),
    ({"strategy": "Recreate", "revisionHistoryLimit": 0}, "Starting"),
]


def state_of(status):
    """The status fields that the operator continues from."""
    state = {name: status.get(name) for name in STATE_FIELDS}
    rollout = {n: value for n, value in state["rollout"].items() if n not in RESULTS}
    return state | {"rollout": rollout}


async def lose_status(stand):
    """Remove the status, and restart the operator."""
    await stand.kube.merge(
        INFERENCE_SERVICES, *stand.key, {"status": None}, manager="test", sub="status"
    )
    assert "rollout" not in await stand.status()
    stand.reconciler = stand.make_reconciler(stand.kube)


async def assert_restored(stand):
    before, deployments = await stand.status(), await stand.deployment_uids()
    await lose_status(stand)
    await stand.step()
    assert stand.error is None
    after = await stand.status()
    assert state_of(after) == state_of(before)
    assert after["replicas"] == before["replicas"]
    assert await stand.deployment_uids() == deployments


async def test_traffic_stays_while_the_spec_is_refused(stand):
    await stand.create()
    await stand.until_phase("Stable")
    await stand.change(engine={"extraArgs": ["--port=1"]})
    await stand.step()
    await assert_restored(stand)
    assert await stand.condition("SpecValid") == ("False", "UnsupportedByRuntime")
    assert await stand.condition("Ready") == ("True", "Ready")


@pytest.mark.parametrize(("rollout", "phase"), MOMENTS)
async def test_a_rollout_continues_where_it_was(stand, rollout, phase):
    await stand.create(rollout=rollout)
    await stand.until_phase("Stable")
    await stand.step()
    await assert_restored(stand)

    await stand.change(engine={"seed": 1})
    await stand.until_phase(phase)
    await stand.step()
    await assert_restored(stand)
    if phase == "Judging":
        await stand.order("promote", (await stand.status())["candidateRevision"])
    if phase == "Judging" or rollout["strategy"] in ("Rolling", "Recreate"):
        await stand.until_phase("Stable")


async def test_a_rejected_revision_stays_rejected(stand):
    await stand.create(rollout={"strategy": "Canary"})
    await stand.until_phase("Stable")
    await stand.change(engine={"seed": 1})
    await stand.until_phase("Judging")
    await stand.order("abort", (await stand.status())["candidateRevision"])
    await stand.until_phase("Rejected")
    await stand.step()
    await assert_restored(stand)
    await assert_restored(stand)


async def test_a_settled_service_writes_no_record(stand):
    await stand.create()
    await stand.until_phase("Stable")
    await stand.step()

    async def versions():
        found, _ = await stand.kube.list(CONTROLLER_REVISIONS, stand.namespace)
        assert sum(ANNOTATION in each["metadata"]["annotations"] for each in found) == 1
        return [each["metadata"]["resourceVersion"] for each in found]

    before = await versions()
    for _ in range(3):
        await stand.step()
    assert await versions() == before
