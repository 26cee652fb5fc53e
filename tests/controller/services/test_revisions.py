"""Revisions at a real API server: across an upgrade of the operator, and by restart and undo."""

import pytest

from penstock.cli.rollout import revisions as rollout_revisions
from penstock.cli.rollout.target import Refused, parse_target
from penstock.clients.kubernetes.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    Resource,
)
from penstock.core.manifests import engine_pod
from penstock.core.spec.history import PODS_ANNOTATION, RESTARTED_AT, STABLE_ANNOTATION, Revision
from penstock.core.spec.service import ROLE_LABEL, SERVE, TEMPLATE_HASH
from penstock.errors import Conflict

pytestmark = pytest.mark.cluster
CHAT = parse_target("chat")
REPLICA_SETS = Resource("apps/v1", "replicasets")


@pytest.fixture
def upgrade(stand, monkeypatch):
    """Function that replaces the operator by one with another default image and other manifests."""

    def make():
        monkeypatch.setattr(engine_pod, "PRE_STOP_S", 7)
        stand.reconciler = stand.make_reconciler(stand.kube, "penstock-2")

    return make


async def remove_annotations(stand):
    """Restore the state of a Penstock version that recorded neither pod templates nor hashes."""
    for resource, names in (
        (CONTROLLER_REVISIONS, (PODS_ANNOTATION, STABLE_ANNOTATION)),
        (DEPLOYMENTS, (TEMPLATE_HASH,)),
    ):
        for each in (await stand.kube.list(resource, stand.namespace))[0]:
            name, nothing = each["metadata"]["name"], dict.fromkeys(names)
            patch = {"metadata": {"annotations": nothing}}
            await stand.kube.merge(resource, stand.namespace, name, patch, manager="test")


async def engines(stand):
    """Return the image of each engine pod by uid, and the names of all ReplicaSets."""
    pods = {
        pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"]
        for pod in await stand.pods()
        if pod["metadata"]["labels"][ROLE_LABEL] == SERVE
    }
    sets, _ = await stand.kube.list(REPLICA_SETS, stand.namespace)
    return pods, sorted(each["metadata"]["name"] for each in sets)


async def records(stand):
    found, _ = await stand.kube.list(CONTROLLER_REVISIONS, stand.namespace)
    return {entry.revision: entry for entry in map(Revision.of, found)}


async def settle(stand, steps=8):
    """Run some reconciles that should change nothing."""
    for _ in range(steps):
        await stand.step()
        # Controllers of the cluster write too; the next pass then tries again.
        assert stand.error is None or isinstance(stand.error, Conflict)


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_an_upgrade_during_a_canary_replaces_no_pod(stand, upgrade, is_recorded):
    await stand.create(rollout={"strategy": "Canary"})
    await stand.until_phase("Stable")
    await stand.change(engine={"seed": 1})
    await stand.until_phase("Judging")
    await settle(stand)
    if not is_recorded:
        await remove_annotations(stand)
    before = await engines(stand)
    assert len(before[1]) == 3  # stable, its control, the canary

    upgrade()
    await settle(stand)

    assert await engines(stand) == before
    status = await stand.status()
    entries = await records(stand)
    assert {entry.pods.image for entry in entries.values()} == {"penstock"}
    assert {r for r, e in entries.items() if e.was_stable} == {status["stableRevision"]}
    found, _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    assert all(each["metadata"]["annotations"].get(TEMPLATE_HASH) for each in found)

    revision = status["candidateRevision"]
    await stand.order("promote", revision)
    await stand.until_phase("Stable")
    await settle(stand)
    pods, _ = await engines(stand)
    assert set(pods.values()) == {"penstock"}


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Rolling", "Recreate"])
async def test_a_restart_uses_the_new_image_and_undo_restores_the_old_one(
    stand, upgrade, strategy, capsys
):
    kept = {"blueGreen": {"scaleDownDelay": "0s"}} if strategy == "BlueGreen" else {}
    await stand.create(rollout={"strategy": strategy, **kept})
    await stand.until_phase("Stable")
    old = (await stand.status())["stableRevision"]
    upgrade()

    await rollout_revisions.restart(stand.kube, stand.namespace, CHAT, watch=False)
    assert f"({strategy})" in capsys.readouterr().out
    first = {"Recreate": "Stopping", "Rolling": "Replacing"}.get(strategy, "Starting")
    await stand.step()
    assert (await stand.status())["rollout"]["phase"] == first
    with pytest.raises(Refused, match=r"is rolling out\. Wait for its end"):
        await rollout_revisions.restart(stand.kube, stand.namespace, CHAT, watch=False)
    if strategy == "Canary":
        await stand.until_phase("Judging")
        await stand.order("promote", (await stand.status())["candidateRevision"])
    await stand.until(lambda: _serves(stand, "penstock-2"))
    new = (await stand.status())["stableRevision"]
    assert new != old

    await rollout_revisions.undo(stand.kube, stand.namespace, CHAT, None, watch=False)
    await stand.step()
    if strategy == "Canary":
        await stand.until_phase("Judging")
        await stand.order("promote", (await stand.status())["candidateRevision"])
    await stand.until(lambda: _serves(stand, "penstock"))
    assert (await stand.status())["stableRevision"] == old
    assert RESTARTED_AT not in str((await stand.body())["spec"])


async def _serves(stand, image):
    await stand.step()
    pods, _ = await engines(stand)
    phase = (await stand.status())["rollout"]["phase"]
    return phase == "Stable" and set(pods.values()) == {image}


# For each engine setting: a change of the spec that sets it, and its path in the history.
SETTINGS = {
    "quantization": (
        {"engine": {"quantization": {"method": "int8"}}},
        "engine.quantization.method",
    ),
    "KV type": ({"engine": {"kvCache": {"dtype": "int8"}}}, "engine.kvCache.dtype"),
    "generation": (
        {"engine": {"generation": {"defaults": {"temperature": "0.2"}}}},
        "engine.generation.defaults.temperature",
    ),
    "chat template": (
        {
            "engine": {
                "parsers": {"chatTemplate": {"configMapKeyRef": {"name": "chat", "key": "a.jinja"}}}
            }
        },
        "engine.parsers.chatTemplate.configMapKeyRef.key",
    ),
    "runtime": ({"runtime": {"type": "VLLM"}}, "runtime.type"),
    "tracing": (
        {"tracing": {"exporterEndpoint": "http://collector:4318"}},
        "tracing.exporterEndpoint",
    ),
}


@pytest.mark.parametrize(("changes", "path"), SETTINGS.values(), ids=SETTINGS)
async def test_history_names_the_setting_and_undo_restores_its_value(
    stand, changes, path, capsys, monkeypatch
):
    monkeypatch.setattr(rollout_revisions.console, "width", 200)  # of any terminal
    before = {"engine": {"seed": 1, "generation": {"defaults": {"temperature": "0.7"}}}}
    await stand.create(rollout={"strategy": "Recreate"}, **before)
    await stand.until_phase("Stable")
    old = (await stand.status())["stableRevision"]
    (engine,) = await containers(stand)
    await stand.change(**changes)
    await stand.until(lambda: _serves_another(stand, old))
    (changed,) = await containers(stand)
    assert engine != changed

    assert await rollout_revisions.show(stand.kube, stand.namespace, CHAT)
    latest = next(line for line in capsys.readouterr().out.splitlines() if "stable" in line)
    assert path in latest
    assert "seed" not in latest

    await rollout_revisions.undo(stand.kube, stand.namespace, CHAT, None, watch=False)
    new = (await stand.status())["stableRevision"]
    await stand.until(lambda: _serves_another(stand, new))
    assert (await stand.status())["stableRevision"] == old
    assert await containers(stand) == [engine]
    spec = (await stand.body())["spec"]
    assert {name: spec.get(name) for name in ("engine", *changes)} == {
        **dict.fromkeys(changes),
        **before,
    }


async def test_history_leaves_out_defaults_that_are_written_down(stand, capsys, monkeypatch):
    monkeypatch.setattr(rollout_revisions.console, "width", 200)
    await stand.create(rollout={"strategy": "Recreate"}, engine={"seed": 1})
    await stand.until_phase("Stable")
    old = (await stand.status())["stableRevision"]
    await stand.change(
        engine={"seed": 2, "dtype": "auto", "memoryUtilizationPercent": 90},
        runtime={"type": "Penstock"},
    )
    await stand.until(lambda: _serves_another(stand, old))
    assert await rollout_revisions.show(stand.kube, stand.namespace, CHAT)
    latest = next(line for line in capsys.readouterr().out.splitlines() if "stable" in line)
    assert latest.split("│")[-2].strip() == "engine.seed"


async def containers(stand):
    """Return the engine's container of each pod that serves, without what differs between equal pods."""
    return [
        {key: value for key, value in pod["spec"]["containers"][0].items() if key != "volumeMounts"}
        for pod in await stand.pods()
        if pod["metadata"]["labels"][ROLE_LABEL] == SERVE
        and not pod["metadata"].get("deletionTimestamp")
    ]


async def _serves_another(stand, revision):
    status = await stand.status()
    return status["rollout"]["phase"] == "Stable" and status["stableRevision"] != revision


async def test_undo_skips_rejected_revisions_and_refuses_an_unread_spec(stand, monkeypatch):
    await stand.create()
    await stand.until_phase("Stable")
    first = (await stand.status())["stableRevision"]
    await stand.change(engine={"seed": 1})
    await stand.until_phase("Replacing")
    await stand.order("abort", (await stand.status())["candidateRevision"])
    await stand.until_phase("Rejected")
    await stand.change(engine={"seed": 2})
    await stand.until_phase("Replacing")
    await stand.until_phase("Stable")
    await settle(stand)
    assert (await stand.status())["stableRevision"] != first

    await stand.change(engine={"seed": 3})  # the operator has not read it yet
    with pytest.raises(Refused, match="not read the last change"):
        await rollout_revisions.undo(stand.kube, stand.namespace, CHAT, None, watch=False)
    await stand.change(engine={"seed": 2})
    await settle(stand)

    # Another client writes once between the read and the patch.
    read, writes = stand.kube.get, []

    async def get(*args):
        body = await read(*args)
        if not writes:
            writes.append("note")
            note = {"metadata": {"annotations": {"note": "x"}}}
            await stand.kube.merge(INFERENCE_SERVICES, *stand.key, note, manager="test")
        return body

    monkeypatch.setattr(stand.kube, "get", get)
    await rollout_revisions.undo(stand.kube, stand.namespace, CHAT, None, watch=False)
    body = await stand.body()
    assert body["spec"].get("engine", {}).get("seed", 0) == 0
    assert body["metadata"]["annotations"]["note"] == "x"


async def test_a_stable_runtime_without_metrics_is_known_in_another_scaling_mode(stand):
    """Its Deployment is created again if it is lost during the rollout of a runtime with metrics."""
    custom = {"type": "Custom", "custom": {"image": "server"}}
    await stand.create(
        runtime=custom, scaling={"mode": "External"}, replicas=1, rollout={"strategy": "Canary"}
    )
    await stand.until_phase("Stable")
    (stable,), _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    await stand.change(
        runtime={"type": "Penstock", "custom": None}, scaling={"mode": "Active"}, replicas=None
    )
    await settle(stand, 2)
    name = stable["metadata"]["name"]
    await stand.kube.delete(DEPLOYMENTS, stand.namespace, name)
    await settle(stand, 3)
    found, _ = await stand.kube.list(DEPLOYMENTS, stand.namespace)
    assert name in [each["metadata"]["name"] for each in found if not is_ending(each)]


def is_ending(each):
    return "deletionTimestamp" in each["metadata"]
