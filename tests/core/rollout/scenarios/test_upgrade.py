"""A new version or engine image of Penstock replaces pods only by a rollout."""

from copy import deepcopy
from dataclasses import replace

import pytest
from tests.core.rollout.scenarios.fake_cluster import POD_DEFAULTS
from tests.core.rollout.scenarios.world import World
from tests.support.specs.service_spec import pod_resources

from penstock.core.canary.verdict import Accept
from penstock.core.formats.strategic_merge import merge
from penstock.core.manifests import engine as manifests
from penstock.core.manifests import engine_pod
from penstock.core.spec import history
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import CONTROL, TEMPLATE_HASH, VariantSpec

STRATEGIES = ["Canary", "BlueGreen", "Rolling", "Recreate"]
RESTARTED = {"metadata": {"annotations": {history.RESTARTED_AT: "2026-01-01T00:00:00Z"}}}
SPOT = VariantSpec(
    "spot", pod_resources("2", "3Gi", ("nvidia.com/gpu", 1)), 1.0, 0, 20, {"pool": "spot", "zone": "a"},
    ({"key": "spot", "operator": "Exists"},),
)  # fmt: skip
PLAIN = VariantSpec("plain", pod_resources("1", "1Gi"), 2.0, 0, 20)
FULL = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "old", "operator": "Exists"}],
        "containers": [
            {"name": "engine", "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"x/y": 1}}},
            {"name": "side", "image": "s"},
        ],
    },
}  # fmt: skip


@pytest.fixture
def upgrade(monkeypatch):
    """`upgrade(world)`: an operator whose default image and whose manifests are others."""

    def make(world):
        monkeypatch.setattr(engine_pod, "PRE_STOP_S", 7)
        world.image = "image-2"

    return make


def forget_pods(world):
    """Leave the cluster as a version of Penstock did that recorded no pods."""
    for revision, entry in world.history.items():
        world.history[revision] = replace(entry, pods=None, was_stable=False)
    for placed, body in world.bodies.items():
        body = deepcopy(body)
        del body["metadata"]["annotations"][TEMPLATE_HASH]
        body["spec"]["template"]["metadata"]["creationTimestamp"] = None
        body["spec"]["template"]["spec"] |= POD_DEFAULTS
        world.bodies[placed] = body


def image_of(world, revision, cohort=""):
    [body] = [
        world.bodies[placed] for placed in world.deployments
        if (placed.revision, placed.cohort) == (revision, cohort)
    ]  # fmt: skip
    return body["spec"]["template"]["spec"]["containers"][0]["image"]


def pre_stop_s(body):
    hook = body["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]
    return hook["sleep"]["seconds"]


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_upgrade_of_the_operator_replaces_no_pod(start_service, upgrade, strategy, is_recorded):
    world = start_service(strategy)
    if not is_recorded:
        forget_pods(world)
    pods = set(world.pods)
    upgrade(world)
    assert world.run() == []
    assert (world.repairs, set(world.pods)) == ([], pods)
    assert image_of(world, revision_of(world.spec)) == "image"
    assert world.history[revision_of(world.spec)].pods.image == "image"


@pytest.mark.parametrize("is_recorded", [True, False])
def test_nor_in_the_middle_of_a_canary(start_service, upgrade, is_recorded):
    world = start_service("Canary")
    new, _ = world.change()
    world.until("Judging")
    if not is_recorded:
        forget_pods(world)
    pods = {pod.name for pod in world.serving()}
    upgrade(world)
    for _ in range(10):
        world.settle_pods()
        world.follow()
        world.reconcile()
    assert (world.repairs, {pod.name for pod in world.serving()}) == ([], pods)
    world.verdict = Accept("it is as good")
    assert world.run()[-1] == "Stable"
    assert (world.repairs, image_of(world, new)) == ([], "image")
    assert world.counts() == {new: 4}


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_control_that_is_made_after_an_upgrade_is_what_stable_is(
    start_service, upgrade, is_recorded
):
    """Otherwise the canary would be compared with another image than the serving one."""
    world = start_service("Canary")
    old = revision_of(world.spec)
    if not is_recorded:
        forget_pods(world)
    upgrade(world)
    new, _ = world.change()
    world.until("Judging")
    assert image_of(world, old, CONTROL) == image_of(world, old) == "image"
    assert image_of(world, new) == "image-2"
    assert {
        pre_stop_s(body) for placed, body in world.bodies.items() if placed.revision == old
    } == {3}
    assert world.repairs == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_restart_takes_the_new_image_by_the_services_own_strategy(
    start_service, upgrade, strategy
):
    world = start_service(strategy)
    world.verdict = Accept("it is as good")
    old = revision_of(world.spec)
    upgrade(world)
    world.spec = replace(world.spec, template=merge(world.spec.template, RESTARTED))
    new = revision_of(world.spec)
    first = {"Recreate": "Stopping", "Rolling": "Replacing"}.get(strategy, "Starting")
    phases = world.run()
    assert (phases[0], phases[-1]) == (first, "Stable")
    assert (world.counts(), world.repairs) == ({new: 4}, [])
    assert image_of(world, new) == "image-2"
    assert history.undo_target(world.history.values(), new).revision == old

    # Undone: with the image that the revision was made with.
    world.spec = replace(world.spec, template={})
    assert world.run()[-1] == "Stable"
    assert (world.counts(), image_of(world, old)) == ({old: 4}, "image")


def test_only_a_revision_that_was_stable_is_gone_back_to(start_service):
    """A serves, B is rejected, C is promoted."""
    world = start_service("Rolling")
    first = revision_of(world.spec)
    rejected, _ = world.change(seed=1)
    world.bad.add(rejected)
    assert world.run()[-1] == "Rejected"
    assert history.undo_target(world.history.values(), rejected).revision == first
    latest, _ = world.change(seed=2)
    assert world.run()[-1] == "Stable"
    assert world.history[rejected].number > world.history[first].number
    assert history.undo_target(world.history.values(), latest).revision == first


def test_a_revision_whose_pods_are_unknown_has_none_to_go_back_to(start_service):
    world = start_service("Rolling")
    current = revision_of(world.spec)
    assert history.undo_target(world.history.values(), current) is None


def test_a_revision_is_gone_back_to_though_the_spec_changed_at_once(start_service):
    """Recreate has no pods of it any more when it is next looked at."""
    world = start_service("Recreate")
    first = revision_of(world.spec)
    world.history[first] = replace(world.history[first], was_stable=False)
    latest, _ = world.change()
    assert world.run()[-1] == "Stable"
    assert history.undo_target(world.history.values(), latest).revision == first


def test_rejected_revisions_do_not_push_out_the_one_to_go_back_to(start_service):
    world = start_service("Rolling", history=2)
    first = revision_of(world.spec)
    second, _ = world.change(seed=1)
    world.run()
    for seed in range(2, 6):
        rejected, _ = world.change(seed=seed)
        world.bad.add(rejected)
        assert world.run()[-1] == "Rejected"
    assert history.undo_target(world.history.values(), second).revision == first
    assert len(world.history) == 4  # the current, the rejected, and two more


@pytest.fixture
def mixed(start_service):
    """Two pods on each of two variants."""
    world = start_service("Rolling", 2)
    world.spec = replace(world.spec, variants=(SPOT, PLAIN))
    world.desired, world.by_variant = 4, {"spot": 2, "plain": 2}
    assert world.run() == []
    assert sorted(placed.variant for placed in world.deployments) == ["plain", "spot"]
    return world


def pod_on(world, variant):
    [body] = [world.bodies[placed] for placed in world.deployments if placed.variant == variant]
    return body["spec"]["template"]["spec"]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_variants_are_left_alone_by_an_upgrade(mixed, upgrade, is_recorded):
    if not is_recorded:
        forget_pods(mixed)
    pods = {pod.name for pod in mixed.serving()}
    upgrade(mixed)
    assert mixed.run() == []
    assert (mixed.repairs, {pod.name for pod in mixed.serving()}) == ([], pods)
    # After the variants are removed, new pods equal those of a service that never had any.
    mixed.spec = replace(mixed.spec, variants=())
    mixed.by_variant = {}
    mixed.run()
    assert "nodeSelector" not in pod_on(mixed, "")
    assert "--device=cpu" in pod_on(mixed, "")["containers"][0]["args"]


@pytest.mark.parametrize(
    "variant",
    [
        replace(SPOT, node_selector={"pool": "spot"}),
        replace(SPOT, node_selector={}, tolerations=()),
        replace(SPOT, resources=pod_resources()),
    ],
)
def test_what_a_variant_says_no_more_is_gone_from_its_pods_alone(mixed, upgrade, variant):
    upgrade(mixed)
    mixed.spec = replace(mixed.spec, variants=(variant, PLAIN))
    assert mixed.run() == []
    pod = pod_on(mixed, "spot")
    assert pod.get("nodeSelector", {}) == variant.node_selector
    assert tuple(pod.get("tolerations", ())) == variant.tolerations
    asked = pod["containers"][0]["resources"]["requests"]
    assert asked.get("nvidia.com/gpu") == ("1" if variant.resources.accelerator else None)
    assert pod["containers"][0]["image"] == "image"  # a change of nodes is no change of the engine
    assert {name.split("-")[-1] for name in mixed.repairs} == {"spot"}


@pytest.mark.parametrize("template", [{}, FULL])
def test_pods_placed_afterwards_are_those_that_are_made_for_the_nodes(template):
    spec = replace(World().spec, template=template, variants=(SPOT, PLAIN))
    revision = revision_of(spec)
    pinned = manifests.own_pods(spec, revision, "image")
    for variant, placed in spec.placed.items():
        there = manifests.own_pods(placed, revision, "image")
        made = manifests.deployment(placed, revision, pinned, variant=variant)
        assert made["spec"]["template"]["spec"] == there.serve["spec"]
        preflight = manifests.preflight(placed, revision, pinned, variant)
        assert preflight["spec"] == there.preflight


def test_undo_goes_back_to_what_serves_and_not_to_what_was_rejected_since(start_service):
    world = start_service("BlueGreen")
    first = revision_of(world.spec)
    world.change(1)
    world.run()
    serving = world.rollout.stable
    for seed in (0, 2):  # once stable, asked for again and rejected; then another
        bad, _ = world.change(seed)
        world.bad.add(bad)
        assert world.run()[-1] == "Rejected"
    entries = world.history.values()
    assert history.undo_target(entries, bad, serving).revision == serving
    assert history.undo_target(entries, serving, serving).revision == first
