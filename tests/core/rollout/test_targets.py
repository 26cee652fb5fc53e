"""Target pods and shares of traffic in each phase."""

from dataclasses import replace

import pytest
from tests.support.specs.preflight_messages import PASSED, REFUSED

from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.size import ReplicaCounts, next_replicas, pods_for
from penstock.core.rollout.targets import percent, targets
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror, Share, split
from penstock.core.spec.canary import CanarySpec, MirrorSpec
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.service import CONTROL

OLD, NEW, OTHER = "a" * 8, "b" * 8, "c" * 8
NAMES = {"old": Side(OLD), "new": Side(NEW), "control": Side(OLD, CONTROL), "other": Side(OTHER)}


def state(phase, strategy="Canary", weight=0, stable=OLD):
    return RolloutState(strategy, phase, 0.0, "because", stable, NEW, 4, weight)


def name_of_side(side):
    return next(name for name, each in NAMES.items() if each == side)


def observed_pods(starved=(), admitted=True, known=True, refused=(), ending=(), **ready_of):
    """Observed pods. ready_of: by side, ready pods or (desired replicas, ready ones)."""
    deployments, pods = [], []
    for name, count in ready_of.items():
        side, (replicas, ready) = NAMES[name], count if isinstance(count, tuple) else (count, count)
        deployments.append(
            ObservedDeployment(
                f"d-{name}",
                name,
                side.revision,
                replicas,
                0,
                name in ending,
                {},
                cohort=side.cohort,
            )
        )
        for number in range(replicas):
            trouble = ("Unschedulable", "no GPU") if name in starved else None
            is_ready = number < ready
            pods.append(
                ObservedPod(
                    f"{name}-{number}", "", side.revision, "serve", "", is_ready, False, "Running",
                    None if is_ready else trouble, "", cohort=side.cohort,
                )
            )  # fmt: skip
    if admitted:
        said, phase = (REFUSED, "Failed") if admitted == "refused" else (PASSED, "Succeeded")
        pods.append(ObservedPod("p", "", NEW, "preflight", "", False, False, phase, None, said))
    return ObservedState(
        tuple(deployments),
        tuple(pods),
        stable_spec=object() if known else None,
        refusals={NAMES[name].revision: ("PodForbidden", "no") for name in refused},
    )


def with_traffic(observed, *names):
    """The same with a share of the published traffic for each of these sides."""
    return replace(observed, traffic=tuple(Share(NAMES[name], 100 // len(names)) for name in names))


def targets_by_side(of, observed, total=4, **rollout):
    """Pods and weights by side."""
    made = targets(RolloutSpec(**rollout), of, observed, total)
    pods = {name_of_side(side): count for side, count in made.pods.items()}
    return pods, {name_of_side(share.side): share.percent for share in made.shares}


ALL_OLD = {"old": 100}


@pytest.mark.parametrize("phase", ["Stable", "Rejected", "Draining", "Discarding"])
@pytest.mark.parametrize(
    ("observed", "pods", "weights"),
    [
        (observed_pods(old=4), {"old": 4}, ALL_OLD),
        (observed_pods(old=4, control=1), {"old": 4}, ALL_OLD),
        # Its control helps until stable has enough, unless there is no room for more of it.
        (
            observed_pods(old=(4, 3), control=1),
            {"old": 4, "control": None},
            {"old": 75, "control": 25},
        ),
        (observed_pods(old=(4, 3), control=(1, 0)), {"old": 4}, ALL_OLD),
        (observed_pods(old=(4, 3), control=1, starved=["old"]), {"old": 4}, ALL_OLD),
        (observed_pods(old=0), {"old": 4}, ALL_OLD),
        (observed_pods(old=0, control=2), {"old": 4, "control": None}, {"control": 100}),
    ],
)
def test_calm(phase, observed, pods, weights):
    assert targets_by_side(state(phase), observed) == (pods, weights)


def test_nothing_is_there_while_it_stops_or_before_anything_was_stable():
    stopping, observed = state("Stopping", "Recreate"), observed_pods(old=4)
    assert targets_by_side(stopping, observed) == ({"old": 0}, {})
    routed = replace(observed, traffic=(Share(NAMES["old"], 100),))
    assert targets_by_side(stopping, routed) == ({"old": None}, {})
    assert targets_by_side(state("Stable", stable=None), observed_pods(old=4)) == ({}, {})


@pytest.mark.parametrize(
    ("of", "observed", "pods", "weights"),
    [
        (state("Starting", "Recreate"), observed_pods(new=(4, 0)), {"new": 4}, {}),
        (state("Starting", "Recreate"), observed_pods(new=(4, 1)), {"new": 4}, {"new": 100}),
        (state("Starting", "BlueGreen"), observed_pods(old=4), {"old": 4, "new": 4}, ALL_OLD),
        (state("Waiting", "BlueGreen"), observed_pods(old=4, new=4), {"old": 4, "new": 4}, ALL_OLD),
        (state("Starting", "BlueGreen", stable=None), observed_pods(), {"new": 4}, {}),
        (state("Starting"), observed_pods(old=4), {"old": 4, "new": 2, "control": 2}, ALL_OLD),
        (state("Starting"), observed_pods(old=4, new=3), {"old": 4, "new": 3, "control": 2}, ALL_OLD),
        (state("Starting"), observed_pods(old=4, control=3), {"old": 4, "new": 2, "control": 2}, ALL_OLD),
        (state("Starting"), observed_pods(old=4, admitted=False), {"old": 4, "new": 2}, ALL_OLD),
        (state("Starting"), observed_pods(old=4, new=(2, 0), admitted=False),
         {"old": 4, "new": 2, "control": 2}, ALL_OLD),
        (state("Starting"), observed_pods(old=4, known=False), {"old": 4, "new": 2}, ALL_OLD),
        (state("Starting"), observed_pods(old=4, refused=["old"]), {"old": 4, "new": 2}, ALL_OLD),
        (
            state("Starting"), observed_pods(old=4, refused=["new"]),
            {"old": 4, "new": 2, "control": 2}, ALL_OLD,
        ),
    ],
)  # fmt: skip
def test_starting(of, observed, pods, weights):
    canary = CanarySpec(min_weight=0.3)
    assert targets_by_side(of, observed, canary=canary) == (pods, weights)


def test_a_canary_without_control_starts_alone():
    assert targets_by_side(state("Starting"), observed_pods(old=4), comparison="Stable")[0] == {
        "old": 4,
        "new": 1,
    }


@pytest.mark.parametrize(
    ("observed", "sides"),
    [
        (observed_pods(old=4, new=1, control=1), ("new", "control")),
        (observed_pods(old=4, new=1, control=(1, 0)), ("new",)),
        (observed_pods(old=4, new=(1, 0), control=1), ("control",)),
        (observed_pods(old=4, new=(1, 0)), None),
    ],
)
def test_copies_go_to_whoever_is_ready(observed, sides):
    spec = RolloutSpec(canary=CanarySpec(mirror=MirrorSpec(percent=50)))
    made = targets(spec, state("Mirroring"), observed, 4)
    assert made.mirror == (sides and RolloutMirror(tuple(NAMES[name] for name in sides), 50))
    assert made.pods == {NAMES["old"]: 4, NAMES["new"]: 1, NAMES["control"]: 1}
    assert made.shares == (Share(NAMES["old"], 100),)
    assert targets(RolloutSpec(), state("Mirroring"), observed, 4).mirror is None


@pytest.mark.parametrize("phase", ["Judging", "Paused"])
@pytest.mark.parametrize(
    ("weight", "observed", "pods", "weights"),
    [
        (5, observed_pods(old=4, new=1, control=1), (4, 1, 1), (90, 5, 5)),
        (30, observed_pods(old=4, new=1, control=1), (3, 2, 2), (50, 25, 25)),
        (30, observed_pods(old=4, new=2, control=(2, 1)), (3, 2, 2), (50, 25, 25)),
        (30, observed_pods(old=4, new=2, control=2), (2, 2, 2), (40, 30, 30)),
        (90, observed_pods(old=4, new=4, control=4), (1, 4, 4), (2, 49, 49)),
        # a side with pods keeps them
        (5, observed_pods(old=4, new=3, control=2), (4, 3, 2), (90, 5, 5)),
        # no pod is ready on one side: no comparison
        (30, observed_pods(old=4, new=(1, 0), control=1), (4, 2, 2), None),
        (30, observed_pods(old=4, new=1, control=(1, 0)), (4, 2, 2), None),
    ],
)
def test_judged_beside_a_control(phase, weight, observed, pods, weights):
    found = targets_by_side(state(phase, weight=weight), observed)
    assert found == (
        dict(zip(("old", "new", "control"), pods, strict=True)),
        dict(zip(("old", "new", "control"), weights, strict=True)) if weights else ALL_OLD,
    )


@pytest.mark.parametrize(
    ("weight", "observed", "pods", "weights"),
    [
        (5, observed_pods(old=4, new=1), (4, 1), (95, 5)),
        (50, observed_pods(old=4, new=1), (4, 2), (75, 25)),
        (90, observed_pods(old=6, new=4), (6, 4), (50, 50)),
        (50, observed_pods(old=4, new=(1, 0)), (4, 2), None),
    ],
)
def test_judged_beside_stable(weight, observed, pods, weights):
    found = targets_by_side(state("Judging", weight=weight), observed, comparison="Stable")
    assert found == (
        dict(zip(("old", "new"), pods, strict=True)),
        dict(zip(("old", "new"), weights, strict=True)) if weights else ALL_OLD,
    )


def test_a_service_of_no_pods_is_divided_by_nothing():
    observed = observed_pods(old=1, new=1, control=1)
    weights = {"old": 40, "new": 30, "control": 30}
    assert targets_by_side(state("Judging", weight=30), observed, total=0)[1] == weights
    assert targets_by_side(state("Growing"), observed_pods(old=1, new=1), total=0)[1] == {
        "old": 1,
        "new": 99,
    }


@pytest.mark.parametrize(
    ("observed", "pods", "weights"),
    [
        (observed_pods(old=4, new=(4, 0)), {"new": 4, "old": None}, ALL_OLD),
        (observed_pods(old=4, new=(4, 1)), {"new": 4, "old": None}, {"old": 75, "new": 25}),
        (observed_pods(old=4, new=4), {"new": 4, "old": None}, {"old": 1, "new": 99}),
        (observed_pods(old=3, control=1, new=(4, 2)), {"new": 4, "old": None, "control": None},
         {"old": 38, "control": 12, "new": 50}),
        (observed_pods(old=1, control=1, new=(4, 2)), {"new": 4, "old": None, "control": None},
         {"old": 25, "control": 25, "new": 50}),
        (observed_pods(old=4, control=1, new=(4, 2)), {"new": 4, "old": None, "control": None},
         {"old": 40, "control": 10, "new": 50}),
        (observed_pods(old=3, control=(1, 0), new=(4, 2)), {"new": 4, "old": None, "control": None},
         {"old": 50, "new": 50}),
        (observed_pods(old=(4, 0), control=0, new=(4, 1)), {"new": 4, "old": None}, {"new": 100}),
        (observed_pods(old=(4, 0), control=1, new=(4, 1)), {"new": 4, "old": None, "control": None},
         {"control": 75, "new": 25}),
        # without room for a surge stable gives up pods one by one, and keeps one
        (observed_pods(old=4, new=(4, 1), starved=["new"]), {"new": 4, "old": 3}, {"old": 75, "new": 25}),
        (observed_pods(old=2, new=(4, 1), starved=["new"]), {"new": 4, "old": 2}, {"old": 75, "new": 25}),
        (observed_pods(old=3, control=1, new=(4, 1), starved=["new"]), {"new": 4, "old": 2, "control": None},
         {"old": 57, "control": 18, "new": 25}),
        (observed_pods(old=2, new=(6, 4), starved=["new"]), {"new": 4, "old": 1}, {"old": 1, "new": 99}),
    ],
)  # fmt: skip
def test_growing(observed, pods, weights):
    assert targets_by_side(state("Growing"), observed) == (pods, weights)


def test_weights_are_what_pods_can_carry_rounded_down():
    found = targets_by_side(
        state("Judging", weight=49), observed_pods(old=7, new=3, control=4), total=7
    )
    assert found[1] == {"old": 16, "new": 42, "control": 42}
    assert targets_by_side(state("Growing"), observed_pods(old=3, new=2), total=3)[1] == {
        "old": 34,
        "new": 66,
    }


def test_hundredths_of_a_large_service():
    assert targets_by_side(state("Growing"), observed_pods(old=4, new=1), total=400)[1] == {
        "old": 99,
        "new": 1,
    }
    judged = targets_by_side(
        state("Judging", weight=30), observed_pods(old=4, new=13, control=13), total=404
    )
    assert judged == ({"old": 391, "new": 122, "control": 122}, {"old": 94, "new": 3, "control": 3})
    assert (
        targets_by_side(state("Judging", weight=30), observed_pods(new=13, control=204), total=404)[
            0
        ]["old"]
        == 380
    )


@pytest.mark.parametrize(
    ("strategy", "observed", "pods", "weights"),
    [
        ("Canary", observed_pods(old=2, new=4), {"new": 4, "old": None}, {"new": 100}),
        ("Canary", observed_pods(old=0, new=4), {"new": 4}, {"new": 100}),
        ("Canary", observed_pods(old=2, control=1, new=4), {"new": 4, "old": None, "control": None},
         {"new": 100}),
        ("Canary", observed_pods(old=2, new=(4, 0)), {"new": 4, "old": None}, ALL_OLD),
        ("BlueGreen", observed_pods(old=2, new=4), {"new": 4, "old": 4}, {"new": 100}),
        ("BlueGreen", observed_pods(new=4), {"new": 4, "old": 4}, {"new": 100}),
    ],
)  # fmt: skip
def test_promoting(strategy, observed, pods, weights):
    assert targets_by_side(state("Promoting", strategy), observed) == (pods, weights)


@pytest.mark.parametrize(
    ("observed", "pods", "weights"),
    [
        (observed_pods(old=1, new=4), {"old": 4, "new": None}, ALL_OLD),
        (observed_pods(old=1, control=1, new=4), {"old": 4, "control": None, "new": None},
         {"old": 50, "control": 50}),
        (observed_pods(old=(1, 0), new=4), {"old": 4, "new": None}, {"new": 100}),
        (observed_pods(old=(1, 0), control=1, new=4), {"old": 4, "control": None, "new": None},
         {"control": 100}),
        (observed_pods(old=(1, 0), new=(4, 0)), {"old": 4, "new": None}, ALL_OLD),
    ],
)  # fmt: skip
def test_rolling_back(observed, pods, weights):
    assert targets_by_side(state("RollingBack"), observed) == (pods, weights)


@pytest.mark.parametrize(
    ("phase", "observed", "pods", "weights"),
    [
        ("Replacing", observed_pods(old=4), {"new": 1, "old": 4}, ALL_OLD),
        ("Replacing", observed_pods(old=4, new=1), {"new": 1, "old": 3}, {"new": 20, "old": 80}),
        ("Replacing", observed_pods(old=3, new=1), {"new": 2, "old": 3}, {"new": 25, "old": 75}),
        ("Replacing", observed_pods(new=4), {"new": 4}, {"new": 100}),
        ("Replacing", observed_pods(old=(4, 0)), {"new": 1, "old": 4}, ALL_OLD),
        # not before the preflight of its model
        ("Replacing", observed_pods(old=4, admitted=False), {"new": 0, "old": 4}, ALL_OLD),
        ("Replacing", observed_pods(old=4, admitted="refused"), {"new": 0, "old": 4}, ALL_OLD),
        # pods of revisions neither wanted nor stable go first; terminating pods do not count
        ("Replacing", observed_pods(old=2, other=2, new=1), {"new": 1, "other": 1, "old": 2},
         {"new": 20, "other": 40, "old": 40}),
        ("Replacing", observed_pods(old=2, other=2, new=3), {"new": 3, "other": 0, "old": 1},
         {"new": 44, "other": 28, "old": 28}),
        ("Replacing", observed_pods(old=4, other=2, ending=["other"]), {"new": 1, "old": 4}, ALL_OLD),
        ("RollingBack", observed_pods(old=2, new=3), {"old": 2, "new": 2}, {"old": 40, "new": 60}),
    ],
)  # fmt: skip
def test_replacing(phase, observed, pods, weights):
    routed = with_traffic(observed, *pods)
    assert targets_by_side(state(phase, "Rolling"), routed) == (pods, weights)


def test_ready_pods_replace_others_once_their_revision_has_traffic():
    observed = with_traffic(observed_pods(old=4, new=1), "old")
    found = targets_by_side(state("Replacing", "Rolling"), observed)
    assert found == ({"new": 1, "old": 4}, {"new": 20, "old": 80})


@pytest.mark.parametrize(
    ("phase", "ready_of", "pods"),
    [
        ("Replacing", {"old": 4}, {"new": 1, "old": 4}),
        ("Replacing", {"old": 4, "new": 1}, {"new": 1, "old": 3}),
        ("RollingBack", {"old": 3, "new": 2}, {"old": 3, "new": 1}),
    ],
)
def test_orphaned_pods_of_stable_count_as_those_of_its_deployment(phase, ready_of, pods):
    observed = observed_pods(**ready_of)
    orphaned = tuple(each for each in observed.deployments if each.revision != OLD)
    passed = ObservedPod("o", "", OLD, "preflight", "", False, False, "Succeeded", None, PASSED)
    observed = replace(observed, deployments=orphaned, pods=(*observed.pods, passed))
    observed = with_traffic(observed, *ready_of)
    assert targets_by_side(state(phase, "Rolling"), observed)[0] == pods


def test_fewer_may_be_ready_where_new_pods_find_no_room():
    limits = {"max_surge": 1, "max_unavailable": 1}
    for starved, old in ((["new"], 3), ([], 4)):
        observed = observed_pods(old=4, new=(1, 0), starved=starved)
        found = targets_by_side(state("Replacing", "Rolling"), observed, **limits)
        assert found[0] == {"new": 1, "old": old}


@pytest.mark.parametrize(
    ("weight", "with_control", "told"),
    [
        (0.0, True, 1),
        (0.004, True, 1),
        (0.3, True, 30),
        (0.494, False, 49),
        (0.9, True, 49),
        (0.9, False, 50),
    ],
)
def test_a_share_is_told_in_percent(weight, with_control, told):
    assert percent(weight, with_control=with_control) == told


@pytest.mark.parametrize(
    ("whole", "by", "weights"),
    [
        (100, {"old": 2, "new": 1}, {"old": 67, "new": 33}),
        (100, {"old": 0, "new": 1}, {"new": 100}),
        (100, {"old": 400, "new": 1}, {"old": 99, "new": 1}),
        (2, {"old": 9, "new": 1}, {"old": 1, "new": 1}),
        (1, {"old": 9, "new": 1}, {"old": 1}),
        (3, {"old": 9, "new": 1, "other": 1}, {"old": 1, "new": 1, "other": 1}),
        (2, {"old": 9, "new": 1, "other": 1}, {"old": 1, "new": 1}),
        # among equal numbers the last name gets the remainder
        (99, {"old": 1, "new": 1}, {"old": 49, "new": 50}),
    ],
)
def test_traffic_in_whole_percent(whole, by, weights):
    shares = split(whole, {NAMES[name]: count for name, count in by.items()})
    assert {name_of_side(share.side): share.percent for share in shares} == weights


@pytest.mark.parametrize(
    ("total", "new", "old", "surge", "unavailable", "lacks_room", "expected"),
    [
        (4, (0, 0), (4, 4), 1, 0, False, (1, 4)),
        (4, (1, 0), (4, 4), 1, 0, False, (1, 4)),
        (4, (1, 1), (4, 4), 1, 0, False, (1, 3)),
        (4, (1, 1), (3, 3), 1, 0, False, (2, 3)),
        (4, (0, 0), (4, 4), 0, 1, False, (0, 3)),
        (4, (0, 0), (3, 3), 0, 1, False, (1, 3)),
        (4, (0, 0), (4, 4), 1, 1, False, (1, 4)),
        (4, (0, 0), (4, 4), 1, 1, True, (1, 3)),
        (4, (0, 0), (9, 9), 1, 0, False, (0, 4)),
        (4, (6, 6), (0, 0), 1, 0, False, (4, 0)),
        (4, (4, 4), (2, 0), 1, 0, False, (4, 0)),
        (0, (0, 0), (2, 2), 1, 0, False, (0, 0)),
    ],
)
def test_the_next_numbers_of_a_replacement(
    total, new, old, surge, unavailable, lacks_room, expected
):
    found = next_replicas(
        total,
        ReplicaCounts(*new),
        ReplicaCounts(*old),
        surge=surge,
        unavailable=unavailable,
        lacks_room=lacks_room,
    )
    assert found == expected


def test_rounding_makes_no_pod_more():
    assert [pods_for(n / 20, 20) for n in range(1, 21)] == list(range(1, 21))
    assert pods_for(0.0501, 20) == 2
    assert pods_for(0.0, 20) == 1
