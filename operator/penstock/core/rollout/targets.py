"""Computes the target pods and traffic shares of each rollout phase.

Stable and its control together keep enough pods for all of the traffic, so a rollback needs no new pod;
the canary's pods are extra. Stable also keeps the pods that its own share needs: a control with one pod
of four but 5 % of the traffic takes no load off it. A side loses no pod while it is judged.
"""

from dataclasses import dataclass

from penstock.core.observed.children import ObservedState
from penstock.core.observed.preflight import preflight_result
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout.size import ReplicaCounts, next_replicas, pods_for, resolve_limits
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror, Share, split
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.service import CONTROL

# Largest share of a canary, in percent, without and with a control of the same share. 49 leaves stable
# 2 %, so that it still serves when canary and control fail.
MAX_WEIGHT, MAX_WEIGHT_WITH_CONTROL = 50, 49


@dataclass(frozen=True, slots=True)
class Targets:
    """Target state of a phase.

    pods: replicas of each side that stays; None keeps the current number. shares, mirror: traffic shares
    and mirroring for the gateways.
    """

    pods: dict[Side, int | None]
    shares: tuple[Share, ...]
    mirror: RolloutMirror | None = None


def targets(spec: RolloutSpec, state: RolloutState, observed: ObservedState, total: int) -> Targets:
    """Target pods and traffic of the current phase. total: pods that all of the traffic needs."""
    view = _View(spec, state, observed, total)
    match state.phase:
        case "Stable" | "Rejected" | "Draining" | "Discarding":
            return view.all_to_stable()
        case "Stopping":
            return view.stopping()
        case "Starting" | "Waiting":
            return view.starting()
        case "Mirroring":
            return view.mirroring()
        case "Judging" | "Paused":
            return view.judging()
        case "Growing":
            return view.growing()
        case "Promoting":
            return view.promoting()
        case "Replacing":
            return view.replacing(view.new)
        case "RollingBack" if state.strategy == "Rolling":
            return view.replacing(view.stable)
        case "RollingBack":
            return view.rolling_back()


def percent(weight: float, *, with_control: bool) -> int:
    """A canary's share in whole percent, at least 1, for the gateways. weight: 0 to 1."""
    most = MAX_WEIGHT_WITH_CONTROL if with_control else MAX_WEIGHT
    return max(1, min(most, round(100 * weight)))


class _View:
    """Target computation for one service: its spec, state and observed pods."""

    def __init__(
        self, spec: RolloutSpec, state: RolloutState, observed: ObservedState, total: int
    ) -> None:
        self.spec, self.state, self.observed, self.total = spec, state, observed, total
        # No object has an empty revision, so a missing side has no pods and no share.
        self.stable = Side(state.stable or "")
        self.control = Side(state.stable or "", CONTROL)
        self.new = Side(state.revision or "")

    def all_to_stable(self) -> Targets:
        """All traffic to stable; its control helps until stable has enough ready pods."""
        return Targets(self._stable_pods(), self._stable_shares(100))

    def stopping(self) -> Targets:
        """Targets while old pods end (Recreate): none, once gateways send them no traffic.

        The Deployment is scaled, not deleted: it takes over pods that were orphaned, so they end too.
        """
        return Targets({self.stable: None if self._is_routed(self.stable) else 0}, ())

    def starting(self) -> Targets:
        if self.state.strategy == "Recreate":
            return Targets({self.new: self.total}, self._whole(self.new))
        pods = {**self._stable_pods(), self.new: self.total}
        if self.state.strategy == "Canary":
            least = pods_for(self.spec.canary.min_weight, self.total)
            pods[self.new] = max(least, self._replicas(self.new))
            if self._has_control and self._is_admitted(self.new.revision):
                pods[self.control] = least
        return Targets(pods, self._stable_shares(100))

    def mirroring(self) -> Targets:
        """Mirror requests to the canary and its control, so that both start judging with warm caches."""
        started, wanted = self.starting(), self.spec.canary.mirror
        if wanted is None:  # removed from the spec during this phase
            return started
        sides = tuple(side for side in (self.new, self.control) if self._ready(side))
        mirror = RolloutMirror(sides, wanted.percent) if sides else None
        return Targets(started.pods, started.shares, mirror)

    def judging(self) -> Targets:
        """Traffic split between stable, canary and control.

        The canary's share is the earned weight, limited by the ready pods of the canary and its control.
        """
        earned = pods_for(self.state.weight_percent / 100, self.total)
        sides = [self.new, self.control] if self._has_control else [self.new]
        pods: dict[Side, int | None] = {side: max(earned, self._replicas(side)) for side in sides}
        able = min(self._ready(side) for side in sides)
        earned_now = percent(self.state.weight_percent / 100, with_control=self._has_control)
        weight = min(earned_now, 100 * able // max(1, self.total))
        left = 100 - weight * len(sides)
        if self._has_control:
            back = self.total - self._ready(self.control)
            pods[self.stable] = max(back, pods_for(left / 100, self.total))
        else:
            pods[self.stable] = max(self.total, self._replicas(self.stable))
        if not weight:
            return Targets(pods, self._stable_shares(100))
        shares = [Share(side, weight) for side in sides]
        return Targets(pods, (Share(self.stable, left), *shares))

    def growing(self) -> Targets:
        """Scale the new revision up to `total`; its share follows its ready pods.

        If its pods find no room, stable is scaled down pod by pod to make room.
        """
        ready, control = self._ready(self.new), self._ready(self.control)
        left: int | None = None
        if self.observed.lacks_room(self.new.revision):
            enough = max(1, self.total - ready - control)
            left = min(enough, self._replicas(self.stable))
        pods: dict[Side, int | None] = {self.new: self.total, self.stable: left}
        if self._replicas(self.control):
            pods[self.control] = None
        if not ready:
            return Targets(pods, self._stable_shares(100, with_control=True))
        if not self._ready(self.stable) + control:
            return Targets(pods, self._whole(self.new))
        weight = max(1, min(99, 100 * ready // max(1, self.total)))
        left_shares = self._stable_shares(100 - weight, with_control=True)
        return Targets(pods, (*left_shares, Share(self.new, weight)))

    def promoting(self) -> Targets:
        pods: dict[Side, int | None] = {self.new: self.total}
        for side in (self.stable, self.control):
            if self._replicas(side):
                pods[side] = None
        if self.state.strategy == "BlueGreen":  # an instant rollback needs all of the old pods
            pods[self.stable] = self.total
        return Targets(pods, self._whole(self.new) or self._stable_shares(100))

    def rolling_back(self) -> Targets:
        """All traffic back to stable as soon as it has a ready pod."""
        pods = {**self._stable_pods(), self.new: None}
        if not self.observed.ready(self.state.stable):
            return Targets(pods, self._whole(self.new) or self._stable_shares(100))
        return Targets(pods, self._stable_shares(100))

    def replacing(self, new: Side) -> Targets:
        """Replace the pods of all other revisions by the new one's; shares follow ready pods."""
        observed = self.observed
        others = {d.side: d.name for d in observed.deployments if d.side != new and not d.is_ending}
        if self.stable != new and self._replicas(self.stable):
            others.setdefault(self.stable, "")  # its Deployment ends or is gone; its pods serve
        # Revisions that are neither new nor stable are scaled down first.
        sides = sorted(others, key=lambda side: (side == self.stable, others[side]), reverse=True)
        old = ReplicaCounts(sum(map(self._replicas, sides)), sum(map(self._ready, sides)))
        # Old pods are removed before this pass writes the traffic, so new ones must have some by then.
        ready = self._ready(new) if self._is_routed(new) else 0
        current = ReplicaCounts(self._replicas(new), ready)
        surge, unavailable = resolve_limits(
            self.spec.max_surge, self.spec.max_unavailable, self.total
        )
        wanted, left = next_replicas(
            self.total,
            current,
            old,
            surge=surge,
            unavailable=unavailable,
            lacks_room=observed.lacks_room(new.revision),
        )
        if not self._is_admitted(new.revision):
            wanted, left = 0, old.replicas
        pods: dict[Side, int | None] = {new: wanted}
        for side in sides:
            pods[side] = min(self._replicas(side), left)
            left -= min(self._replicas(side), left)
        if not old.replicas and self.state.stable and not self._is_admitted(new.revision):
            # A request that came at zero does not wait for the preflight.
            pods[self.stable] = self.total
        by_side = {side: self._ready(side) for side in pods}
        if any(by_side.values()):
            return Targets(pods, split(100, by_side))
        return Targets(pods, self._stable_shares(100))

    @property
    def _has_control(self) -> bool:
        is_refused = self.state.stable in self.observed.refusals
        is_known = self.observed.stable_spec is not None
        return self.spec.has_control and is_known and not is_refused

    def _is_admitted(self, revision: str) -> bool:
        """Whether the revision may have pods: its preflight passed, or it already has a Deployment."""
        if self.observed.deployment(revision) is not None:
            return True
        preflight = self.observed.preflight(revision)
        verdict = preflight_result(preflight) if preflight else None
        return verdict is not None and verdict.ok

    def _is_routed(self, side: Side) -> bool:
        """Whether the side has a share of the traffic that was last published to gateways."""
        return any(share.side == side for share in self.observed.traffic)

    def _replicas(self, side: Side) -> int:
        return self.observed.replicas(side.revision, side.cohort)

    def _ready(self, side: Side) -> int:
        return self.observed.ready(side.revision, side.cohort)

    def _stable_pods(self) -> dict[Side, int | None]:
        """Pods of stable, and of its control while stable is short of ready pods and finds room."""
        if self.state.stable is None:
            return {}
        pods: dict[Side, int | None] = {self.stable: self.total}
        is_short = self._ready(self.stable) < self.total
        has_room = not self.observed.lacks_room(self.stable.revision)
        if is_short and has_room and self._ready(self.control):
            pods[self.control] = None
        return pods

    def _stable_shares(self, whole: int, *, with_control: bool = False) -> tuple[Share, ...]:
        """`whole` percent for stable, shared with its control if asked for, or while stable needs it."""
        if self.state.stable is None:
            return ()
        ready = {self.stable: self._ready(self.stable)}
        if with_control or self.control in self._stable_pods():
            ready[self.control] = self._ready(self.control)
        if any(ready.values()):
            return split(whole, ready)
        return (Share(self.stable, whole),)

    def _whole(self, side: Side) -> tuple[Share, ...]:
        """All traffic to one side; no shares while it has no ready pod."""
        return (Share(side, 100),) if self._ready(side) else ()
