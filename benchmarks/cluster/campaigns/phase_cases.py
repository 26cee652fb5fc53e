"""Services that stay in one phase of a rollout each, and services in states that are no phase."""

from dataclasses import dataclass

from tests.support.cluster.manifests import TINY

from penstock.core.formats.strategic_merge import merge
from penstock.core.observed.rollout_phases import Phase
from penstock.core.rollout.commands import Action
from penstock.core.spec.service import Object

# In this phase: merge an object into the spec, give a command, or scale to a number of replicas.
Step = tuple[Phase, Object | Action | int]

# Longer than any drill.
LONG = "6h"
# Name of a scheduler that does not exist: pods that name it stay Pending.
NO_SCHEDULER = "none"


def _container(**settings: object) -> Object:
    return {"template": {"spec": {"containers": [{"name": "engine", **settings}]}}}


def _shell(command: str) -> list[str]:
    return ["bash", "-c", command]


SEED: Object = {"engine": {"seed": 1}}
HANGING = _container(command=_shell("exec sleep infinity"))
UNREADABLE = _container(image="")


def _alone(label: str) -> Object:
    """A template with this label, of whose pods the node takes only one."""
    term = {"labelSelector": {"matchLabels": {label: ""}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"template": {"metadata": {"labels": {label: ""}}, "spec": {"affinity": affinity}}}


BASE: Object = {
    # All pods have to fit on one node.
    "resources": {
        "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 1, "memory": "1Gi"},
    },
    "rollout": {"progressDeadline": LONG},
}  # fmt: skip
REAL: Object = {
    **BASE,
    "engine": {"maxModelLen": 256, "maxNumSeqs": 4, "kvCache": {"memory": "8Mi"}},
}
# Engines that only answer probes, in little memory.
STUB: Object = {
    **BASE,
    **_container(
        command=_shell("touch ready health && exec python -m http.server --bind $POD_IP 8000")
    ),
}
# The same, and they take an hour to terminate.
SLOW_STUB: Object = merge(
    STUB,
    {
        **_container(lifecycle={"preStop": {"sleep": {"seconds": 3600}}}),
        "terminationGracePeriodSeconds": 7200,
    },
)
LATE: Object = {"rollout": {"progressDeadline": "5s"}}
TWO: Object = {"scaling": {"minReplicas": 2, "maxReplicas": 2}}
RECREATE: Object = {"rollout": {"strategy": "Recreate"}}
CANARY: Object = {
    "rollout": {
        "strategy": "Canary",
        # The share does not grow, and light load gives no verdict.
        "canary": {
            "minWeightPercent": 30, "maxWeightPercent": 30, "latencyTolerancePercent": 1,
            "alpha": "0.0001", "maxDuration": LONG,
        },
    }
}  # fmt: skip
MIRRORED: Object = {"rollout": {"strategy": "Canary", "canary": {"mirror": {"duration": LONG}}}}
MANUAL: Object = {"rollout": {"strategy": "BlueGreen", "blueGreen": {"promotion": "Manual"}}}


def _blue_green(scale_down_delay: str) -> Object:
    return {"rollout": {"strategy": "BlueGreen", "blueGreen": {"scaleDownDelay": scale_down_delay}}}


def _external(replicas: int) -> Object:
    return {"scaling": {"mode": "External"}, "replicas": replicas}


@dataclass(frozen=True, slots=True)
class Case:
    """A service, and the phase that it stays in.

    spec: the first one. steps: what brings the service to its phase. stalled: reason of the condition
    Stalled; empty if it is False. has_load: clients send requests.
    """

    name: str
    phase: Phase
    spec: Object
    steps: tuple[Step, ...] = ()
    stalled: str = ""
    has_load: bool = False


CASES = (
    Case("rolling", "Stable", REAL, has_load=True),
    Case("canary", "Stable", merge(STUB, CANARY)),
    Case("blue-green", "Stable", merge(STUB, _blue_green("1s"))),
    Case("recreate", "Stable", merge(STUB, RECREATE)),
    Case("first-starting", "Starting", merge(STUB, HANGING)),
    Case("starting", "Starting", merge(REAL, CANARY), (("Stable", HANGING),), has_load=True),
    Case("mirroring", "Mirroring", merge(STUB, MIRRORED), (("Stable", SEED),)),
    Case("judging", "Judging", merge(REAL, CANARY), (("Stable", SEED),), has_load=True),
    Case(
        "paused", "Paused", merge(REAL, CANARY), (("Stable", SEED), ("Judging", "pause")),
        has_load=True,
    ),
    Case(
        "growing", "Growing", merge(merge(STUB, CANARY), TWO),
        (("Stable", _alone("grows")), ("Judging", "promote")),
    ),
    Case("waiting", "Waiting", merge(REAL, MANUAL), (("Stable", SEED),), has_load=True),
    Case("replacing", "Replacing", REAL, (("Stable", HANGING),), has_load=True),
    Case("promoting", "Promoting", merge(REAL, _blue_green(LONG)), (("Stable", SEED),), has_load=True),
    Case("draining", "Draining", merge(SLOW_STUB, _blue_green("1s")), (("Stable", SEED),)),
    Case("stopping", "Stopping", merge(SLOW_STUB, RECREATE), (("Stable", SEED),)),
    Case(
        "rolling-back", "RollingBack", merge(merge(STUB, _alone("rolls-back")), _external(1)),
        (("Stable", HANGING), ("Replacing", 2), ("Replacing", "abort")),
    ),
    Case(
        "discarding", "Discarding", merge(SLOW_STUB, MANUAL),
        (("Stable", SEED), ("Waiting", "abort")),
    ),
    Case(
        "rejected", "Rejected", merge(REAL, CANARY), (("Stable", SEED), ("Judging", "abort")),
        stalled="Rejected", has_load=True,
    ),
    Case("late", "Starting", merge(merge(STUB, HANGING), LATE), stalled="ProgressDeadlineExceeded"),
    # Its pod gets the status of one whose image cannot be pulled.
    Case(
        "no-image", "Starting",
        merge(merge(STUB, LATE), {"template": {"spec": {"schedulerName": NO_SCHEDULER}}}),
        stalled="ProgressDeadlineExceeded",
    ),
    Case(
        "no-model", "Starting", merge(STUB, {"model": {"uri": "pvc://models/nowhere"}}),
        stalled="ModelNotFound",
    ),
    Case("invalid", "Stable", REAL, (("Stable", UNREADABLE),), stalled="InvalidSpec", has_load=True),
    Case(
        "same-name", "Starting", merge(STUB, {"model": TINY["model"] | {"name": "rolling"}}),
        stalled="ModelNameInUse",
    ),
    Case("scaled", "Stable", merge(REAL, _external(1)), (("Stable", 2),), has_load=True),
    Case("zero", "Stable", merge(STUB, _external(0))),
    Case("dry-run", "Stable", merge(STUB, {"scaling": {"mode": "DryRun", "maxReplicas": 3}})),
    Case(
        "variants", "Stable",
        merge(
            STUB,
            {
                "objectives": {"ttft": "5s", "tpot": "500ms"},
                "scaling": {"maxReplicas": 2},
                "variants": [
                    {"name": "small", "pricePerHour": "1"},
                    {"name": "large", "pricePerHour": "3"},
                ],
            },
        ),
    ),
)  # fmt: skip
