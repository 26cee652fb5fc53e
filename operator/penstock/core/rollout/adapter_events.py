"""Detects events of the rollout of an adapter's version, the most urgent first.

The phases are those of a service, with copies in the memory of engines in place of pods.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.core.canary.verdict import Abort, Accept, Verdict, describe_progress
from penstock.core.observed.rollout_phases import PHASES
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.rollout import routes
from penstock.core.rollout.adapter_targets import wanted_copies
from penstock.core.rollout.commands import Command
from penstock.core.rollout.user_requests import EventWithReason, user_requests
from penstock.core.spec.canary import CanarySpec

# Time after which a version with fewer copies than wanted goes on with those that it has: the slots may
# be held by the version that it replaces.
MAX_SHORT_S = 60.0


@dataclass(frozen=True, slots=True)
class VersionCopies:
    """Copies of one version on engines that are not draining. known: also loading and evicted ones."""

    resident: int = 0
    known: int = 0


NO_COPIES = VersionCopies()


@dataclass(frozen=True, slots=True)
class AdapterInputs:
    """Inputs of one step."""

    canary: CanarySpec  # settings of the service
    wanted: str  # revision of the spec
    now_s: float
    copies: Mapping[str, VersionCopies] = field(default_factory=dict)  # by revision
    # Whether the stable version has requests and answers them, so that a canary can be compared with it
    is_used: bool = False
    failure: str = ""  # why engines cannot load the version that is rolled out; empty if they can
    # verdict, command, applied_generations: as for a service
    verdict: Verdict | None = None
    command: Command | None = None
    applied_generations: routes.AppliedGenerations | None = None

    def resident(self, revision: str | None) -> int:
        return self.copies.get(revision or "", NO_COPIES).resident


@dataclass(frozen=True, slots=True)
class StoredTraffic:
    """Traffic in the status. shares: percent by revision."""

    shares: Mapping[str, int]
    generation: int


def detect_adapter_events(
    state: RolloutState, inputs: AdapterInputs, traffic: StoredTraffic
) -> Iterator[EventWithReason]:
    yield from user_requests(state, inputs.wanted, inputs.command)
    if inputs.failure and state.revision is not None:
        yield "PodsFailed", f"revision {state.revision} cannot be loaded: {inputs.failure}"
    if isinstance(inputs.verdict, Accept):
        yield "Accepted", inputs.verdict.reason
    if isinstance(inputs.verdict, Abort):
        yield "Aborted", inputs.verdict.reason
    yield from _progress(state, inputs, traffic)


def is_late(state: RolloutState, inputs: AdapterInputs) -> bool:
    """Whether the version that is rolled out has waited for its copies for longer than loads take."""
    return PHASES[state.phase].starts_pods and inputs.now_s >= state.since_s + MAX_SHORT_S


def waiting_reason(state: RolloutState, inputs: AdapterInputs, traffic: StoredTraffic) -> str:
    """A sentence on what the phase waits for; empty if there is none."""
    match PHASES[state.phase].awaits:
        case "ReadyPods":
            wanted = wanted_copies(state, inputs.canary)
            resident = inputs.resident(state.revision)
            return f"{resident} of {wanted} copies of revision {state.revision} are loaded"
        case "Evidence":
            return describe_progress(inputs.verdict)
        case "TrafficToNew" | "TrafficToStable":
            return routes.describe_lagging_gateway(inputs.applied_generations, traffic.generation)
        case "RemovedPods" | "NoPods":
            return "copies of the other version still have requests, or are being unloaded"
        case "Spec" | "User":
            return ""


def _progress(
    state: RolloutState, inputs: AdapterInputs, traffic: StoredTraffic
) -> Iterator[EventWithReason]:
    """Yield the event that the current phase waits for, if it happened."""
    match PHASES[state.phase].awaits:
        case "ReadyPods":
            resident = inputs.resident(state.revision)
            least = 1 if is_late(state, inputs) else wanted_copies(state, inputs.canary)
            if resident >= least:
                loaded = "1 copy" if resident == 1 else f"{resident} copies"
                yield "PodsReady", f"{loaded} of revision {state.revision} loaded"
        case "TrafficToNew" | "TrafficToStable":
            if reason := _routes_moved(state, inputs, traffic):
                yield "RoutesMoved", reason
        case "RemovedPods" | "NoPods":
            if not any(
                c.known for revision, c in inputs.copies.items() if revision != state.stable
            ):
                yield "PodsGone", "the copies without traffic are unloaded"
        case "Spec" | "Evidence" | "User":
            pass


def _routes_moved(state: RolloutState, inputs: AdapterInputs, traffic: StoredTraffic) -> str:
    """Why copies without traffic may be unloaded, in words; empty while they must stay."""
    is_to_new = PHASES[state.phase].awaits == "TrafficToNew"
    serving = state.revision if is_to_new else state.stable
    if traffic.shares.keys() != {serving}:
        return ""
    waited_s = inputs.now_s - state.since_s
    return routes.explain_moved_traffic(inputs.applied_generations, traffic.generation, waited_s)
