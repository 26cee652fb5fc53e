"""Invariants of traffic and pods during a rollout, stated without the tables of phases and targets."""

from tests.core.rollout.scenarios.fake_cluster import name_of, placed_of
from tests.core.rollout.scenarios.plan_step import GATEWAYS_S

from penstock.core.rollout.size import resolve_limits
from penstock.core.routing.pick import Side

STABLE_ALONE = ("Stable", "Rejected", "Draining", "Discarding", "Mirroring", "Waiting")


def told_sides(world, made):
    """The sides with traffic: in the status, and in gateways that are waited for."""
    told = {share.side for share in world.traffic}
    is_due = f"after {GATEWAYS_S:.0f} s" in made.rollout.reason
    if made.rollout.phase in ("Draining", "Discarding") and not is_due:
        applied = {s.side for g in world.gateways.values() for s in world.told[g]}
        # A control goes when its stable has enough pods, and the gateway tries one of those.
        told |= {side for side in applied if not side.cohort}
    return told


def check_shares(world, made):
    """Shares are whole, and those who have any are ready if anybody is."""
    told, state = told_sides(world, made), made.rollout
    if state.phase in ("Judging", "Paused"):
        # A canary that is judged does not take over from a stable revision without ready pods.
        told = {side for side in told if side.revision != state.revision}
    weights = [share.percent for share in made.shares]
    assert not weights or sum(weights) == 100
    assert all(weight > 0 for weight in weights)
    ready = {share.side.revision: world.ready(share.side.revision) for share in made.shares}
    if made.rollout.phase != "Stopping" and any(world.ready(side.revision) for side in told):
        assert any(ready.values()), f"{made.rollout.phase}: nobody ready has the traffic"
    if any(ready.values()):
        assert all(ready.values()), f"traffic for a revision without ready pods: {made.shares}"


def check_deletions(world, made):
    """Deployments go after the traffic has left them, in the status and in gateways."""
    told = told_sides(world, made)
    for deletion in made.delete:
        if deletion.kind == "Deployment":
            gone = world.placed(deletion.name)
            is_replaced = gone.variant not in world.spec.placed and any(
                pod.is_ready for pod in world.serving()
                if pod.side == gone.side and pod.variant in world.spec.placed
            )  # fmt: skip
            assert gone.side not in told or is_replaced, "pods with traffic are deleted"


def check_routes(step):
    """Which revisions get traffic in a phase, and no more than they earned and can serve."""
    state, made, total = step.result, step.made, max(1, step.made.total)
    new = step.ready(state.revision, "")
    weight = sum(each.percent for each in made.shares if each.side.revision == state.revision)
    routed = {share.side.revision for share in made.shares}
    if state.phase in STABLE_ALONE or (state.phase == "Starting" and state.strategy != "Recreate"):
        assert routed <= {state.stable}, f"{state.phase}: traffic for {routed}"
    elif state.phase == "Promoting":
        assert routed == {state.revision if new else state.stable}, "the traffic does not move"
    elif state.phase == "RollingBack" and state.strategy != "Rolling":
        is_back = step.ready(state.stable) or not new
        assert routed == {state.stable if is_back else state.revision}, "the canary keeps traffic"
    elif state.phase in ("Judging", "Paused"):
        assert weight <= min(state.weight_percent, 100 * new / total), "too much for the canary"
    elif state.phase == "Growing" and step.ready(state.stable):
        assert weight <= max(1, 100 * new / total), "more than the new pods can serve"
    if made.mirror is not None:
        assert state.phase == "Mirroring"
        assert all(step.ready(*side) for side in made.mirror.targets), "copies for nobody"


def check_capacity(step):
    """No plan takes ready pods away that the traffic needs."""
    world, state, needed = step.world, step.result, step.made.total
    if state.phase == "Stopping":
        routed = {share.side.revision for share in world.traffic}
        kept = ready_pods(world, step.made, routed)
        assert kept == ready_pods(world, None, routed), "pods with traffic are stopped"
        return
    lacks_room = bool(world.over_quota) or any(pod.trouble for pod in world.serving())
    of = {state.stable}
    if state.phase == "Replacing" or (state.phase, state.strategy) == ("RollingBack", "Rolling"):
        rollout = world.spec.rollout
        surge, unavailable = resolve_limits(rollout.max_surge, rollout.max_unavailable, needed)
        needed -= unavailable if lacks_room or not surge else 0
        of = {placed.revision for placed in world.deployments}
    elif state.phase == "Growing" and lacks_room:
        of = {state.stable, state.revision}
    elif lacks_room:
        return  # stable's control, which stands in for its pods, makes room for them
    were, kept = ready_pods(world, None, of), ready_pods(world, step.made, of)
    assert kept >= min(were, needed), f"{state.phase}: {kept} of {were} ready pods stay"


def ready_pods(world, made, revisions):
    """Ready pods of the revisions after the plan; made: None for those there are now."""
    scaled = {scale.deployment: scale.replicas for scale in made.scale} if made else {}
    gone = {each.name for each in made.delete if each.kind == "Deployment"} if made else set()
    count = 0
    for placed, replicas in world.deployments.items():
        ready = sum(pod.is_ready for pod in world.serving() if placed_of(pod) == placed)
        if placed.revision in revisions and name_of(placed) not in gone:
            count += min(ready, replicas, scaled.get(name_of(placed), replicas))
    return count


def check_gateways(step):
    """Pods are removed after all gateways have left them, or had the time to."""
    before, world, passed_s = step.before, step.world, step.world.now_s - step.before.since_s
    if step.phases not in (("Promoting", "Draining"), ("RollingBack", "Discarding")):
        assert step.result.phase != "Draining" or before.phase == "Draining", "a phase is skipped"
        return
    lagging = {g for g, applied in world.gateways.items() if applied < world.generation}
    is_due = passed_s >= GATEWAYS_S
    assert is_due or not lagging | world.silent, f"{lagging | world.silent} may still send requests"
    routed = {share.side.revision for share in world.traffic}
    leaving = before.stable if before.phase == "Promoting" else before.revision
    assert leaving not in routed, "pods with traffic are removed"
    if before.phase == "RollingBack":
        is_back = step.ready(before.stable) or not step.ready(before.revision)
        assert is_back, "the only pods that serve are removed"
    elif before.strategy == "BlueGreen" and step.made.revision == before.revision:
        kept_s = world.spec.rollout.scale_down_delay_s
        assert passed_s >= kept_s, "the old pods are removed before a rollback is out of date"


def check_removal(step):
    """Pods without traffic are waited for until their time is over, and with Recreate until they are gone."""
    before, world = step.before, step.world
    if before.phase not in ("Draining", "Discarding", "Stopping") or not step.is_left:
        return
    if before.phase == "Stopping" and step.result.phase == "Stopping":
        return  # another revision is wanted
    kept = None if before.phase == "Stopping" else Side(before.stable)
    is_next_wanted = step.made.revision != (before.revision or before.stable)
    others = [
        pod.name
        for pod in world.pods.values()
        if pod.role == "serve"
        and pod.side != kept
        and not (kept and pod.is_ending and is_next_wanted)
    ]
    is_late = kept is not None and world.now_s >= step.removal_limit_s()
    assert is_late or not others, f"{before.phase} ends although {others} exist"


TRAFFIC_INVARIANTS = check_routes, check_capacity, check_gateways, check_removal
