"""Rollouts in namespaces with a limit or a fault, and how the documentation says that they end."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Literal, get_args

from benchmarks.cluster.campaigns.phase_cases import NO_SCHEDULER
from benchmarks.cluster.campaigns.scripted_pods import CRASHING, MISSING

from penstock.core.spec.rollout import Strategy
from penstock.core.spec.service import TERMINATION_OVERHEAD_S, Object

# quota: two engines and a preflight fit. limits: no container may have more memory than the engine.
# terminating: a finalizer holds an old pod. lost: the node of one of two engines does not answer.
# orphaned: the stable Deployment is deleted without its pods as the spec changes.
Fault = Literal["quota", "limits", "terminating", "lost", "orphaned"]
Edit = Literal["good", "bad", "undo", "refused"]
Outcome = Literal["RolledOut", "Rejected", "Stalled"]

REPLICAS = 2
# Longer than the script needs for a pod on a machine with other work, in seconds.
PROGRESS_DEADLINE_S = 15
TERMINATION_S = TERMINATION_OVERHEAD_S + 1
MEMORY, TOO_MUCH_MEMORY = "1Gi", "2Gi"
QUOTA = {"requests.cpu": "2100m"}
LIMITS = {"limits": [{"type": "Container", "max": {"memory": MEMORY}}]}
LATE = "ProgressDeadlineExceeded"
SHORT_ROLLING = "Rolling, maxUnavailable 1"
# spec.rollout by the name that the table has for it.
SETTINGS: dict[str, Object] = {
    "Rolling": {"strategy": "Rolling"},
    SHORT_ROLLING: {
        "strategy": "Rolling", "rolling": {"maxSurge": 1, "maxUnavailable": 1},
    },
    "Canary": {"strategy": "Canary"},
    "BlueGreen": {"strategy": "BlueGreen", "blueGreen": {"scaleDownDelay": "2s"}},
    "Recreate": {"strategy": "Recreate"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ending:
    """How a rollout ends. cause: a part of its message, or the reason of the condition Stalled."""

    outcome: Outcome
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A service with a fault, and an edit of it. image: that a bad edit asks for; "" for too much memory."""

    number: int
    fault: Fault
    settings: str
    edit: Edit
    image: str

    @property
    def strategy(self) -> Strategy:
        strategy: Strategy = SETTINGS[self.settings]["strategy"]
        return strategy

    @property
    def spec(self) -> Object:
        """The spec before the edit. No scheduler sees its pods: a script plays them."""
        return {
            "model": {"uri": "pvc://none/tiny"},
            "resources": {"limits": {"cpu": "1", "memory": MEMORY}},
            "scaling": {"mode": "External"},
            "replicas": REPLICAS,
            "terminationGracePeriodSeconds": TERMINATION_S,
            "template": {"spec": {"schedulerName": NO_SCHEDULER}},
            "rollout": {"progressDeadline": f"{PROGRESS_DEADLINE_S}s", **SETTINGS[self.settings]},
        }

    @property
    def change(self) -> Object:
        """The fields that the edit merges into the spec; of an undo, those that it undoes."""
        if self.edit == "good":
            return {"engine": {"seed": 7}}
        if self.edit != "refused" and not self.image:
            return {"resources": {"limits": {"memory": TOO_MUCH_MEMORY}}}
        container = {"name": "engine", "image": self.image}
        return {"template": {"spec": {"containers": [container]}}}

    @property
    def num_before(self) -> int:
        """Engines that are ready before the edit."""
        return REPLICAS - 1 if self.fault == "lost" else REPLICAS

    @property
    def num_left(self) -> Collection[int]:
        """Numbers of ready engines that a rollout may leave if it ended without Stalled."""
        if self.ending.outcome == "RolledOut" and self.edit == "good":
            return [REPLICAS]
        # A control pod stays in the place of the lost one, if it was up before the canary failed.
        is_short = self.strategy == "Canary" and self.fault == "lost"
        return [self.num_before, REPLICAS] if is_short else [self.num_before]

    @property
    def min_serving(self) -> int:
        """Fewest pods that answer requests until the end."""
        if self.edit == "refused":
            return self.num_before
        if self.strategy == "Recreate":
            return 0
        is_short = self.settings == SHORT_ROLLING and self.fault == "quota"
        return REPLICAS - 1 if is_short else self.num_before

    @property
    def ending(self) -> Ending:
        if self.edit == "refused":
            return Ending("Stalled", "InvalidSpec")
        if self._waits_for_old_pods or (self.strategy, self.edit) == ("Recreate", "bad"):
            return Ending("Stalled", LATE)
        if self.edit == "bad":
            return Ending("Rejected", self._failure)
        if self.edit == "good" and self._finds_no_room:
            return Ending("Rejected", "exceeded quota")
        return Ending("RolledOut")

    @property
    def _waits_for_old_pods(self) -> bool:
        """Whether the end needs pods to end, or to come up, that the fault keeps from it."""
        if self.strategy == "Recreate":
            return self.fault in ("terminating", "lost")
        return self.strategy == "Rolling" and self.fault == "lost" and self.edit != "good"

    @property
    def _failure(self) -> str:
        if not self.image:
            return "maximum memory usage per Container is"
        if self.image == MISSING:  # its preflight does not pass, so no engine asks for room
            return "ErrImagePull"
        return "exceeded quota" if self._finds_no_room else "crashed"

    @property
    def _finds_no_room(self) -> bool:
        """Whether new pods wait for room that the strategy does not make."""
        makes_room = self.settings == SHORT_ROLLING or self.strategy == "Recreate"
        return self.fault == "quota" and not makes_room


def draw_cases(num_cases: int, seed: int) -> Iterator[Case]:
    """Yield distinct cases. Raises ValueError if there are fewer."""
    random = Random(seed)
    every = [*product(get_args(Fault), SETTINGS, get_args(Edit))]
    for number, (fault, settings, edit) in enumerate(random.sample(every, num_cases)):
        is_bad = edit in ("bad", "undo") and fault != "limits"
        image = random.choice((MISSING, CRASHING)) if is_bad else ""
        yield Case(number, fault, settings, edit, image)
