"""A plan with what was before it, for the invariants of a rollout."""

from dataclasses import dataclass
from typing import Any

from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.plan import Plan, PlanInputs
from penstock.core.rollout.events import MAX_RESTARTS

# Phases in which new pods start or serve, and the old ones can take over again.
UNDECIDED = (
    "Starting", "Mirroring", "Waiting", "Judging", "Paused", "Growing", "Replacing", "Promoting",
)  # fmt: skip
GIVEN_UP = ("RollingBack", "Discarding", "Rejected")
# Limits of the reference page, in seconds. REMOVAL_S: after the pods' grace period.
GATEWAYS_S, REMOVAL_S = 30.0, 30.0


@dataclass(frozen=True)
class Step:
    """A plan of a world that has a rollout, before the plan is carried out. before: the state so far."""

    world: Any
    made: Plan
    given: PlanInputs
    before: RolloutState

    @property
    def result(self):
        return self.made.rollout

    @property
    def phases(self):
        return self.before.phase, self.result.phase

    @property
    def is_left(self):
        """Whether the phase before ends, or begins again."""
        was, now = self.before, self.result
        return (was.phase, was.revision, was.since_s) != (now.phase, now.revision, now.since_s)

    @property
    def order(self):
        """The command that this step reads; empty if there is none for the revision at hand."""
        command, state = self.given.command, self.before
        if command is None or command.text == state.command:
            return ""
        rejected = state.rejected.revision if state.rejected else None
        known = rejected if state.phase == "Rejected" else state.revision
        return command.action if command.revision == known else ""

    @property
    def is_redirected(self):
        """Whether a command, or another revision in the spec, comes before what the rollout finds."""
        return bool(self.order) or self.made.revision != self.before.revision

    def ready(self, revision, cohort=None):
        return sum(
            pod.is_ready
            for pod in self.world.serving()
            if pod.revision == revision and cohort in (None, pod.cohort)
        )

    def is_failing(self, revision):
        """Whether the revision's pods crash, or its preflight failed."""
        return any(
            pod.phase == "Failed"
            if pod.role == "preflight"
            else pod.is_crash_looping and pod.restarts > MAX_RESTARTS
            for pod in self.world.pods.values()
            if pod.revision == revision and not pod.is_ending
        )

    def progress_limit_s(self, revision):
        """Unix time by which another pod of the revision has to be ready."""
        ready_s = [
            parse_timestamp(pod.ready_at)
            for pod in self.world.serving()
            if pod.revision == revision and pod.ready_at
        ]
        return max([self.before.since_s, *ready_s]) + self.world.spec.rollout.progress_deadline_s

    def removal_limit_s(self):
        """Unix time until which pods that terminate are waited for."""
        return self.before.since_s + self.world.spec.termination_grace_s + REMOVAL_S
