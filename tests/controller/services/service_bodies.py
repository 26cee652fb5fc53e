"""An InferenceService in the middle of a rollout, and its children, as the API server has them."""

from penstock.api.inferenceservice.kind import KIND
from penstock.core.spec.service import (
    API_VERSION,
    COHORT_LABEL,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVICE_LABEL,
    VARIANT_LABEL,
)

KEY = ("default", "chat")
OLD, NEW = "a" * 8, "b" * 8
AT = "2026-01-01T00:00:00Z"


def rolled_out_service(name="chat", uid="u1", phase="Judging", revision=NEW):
    """A service with objectives and one variant, whose canary is judged."""
    evidence = {
        "metric": "TTFT", "effect": 0.1, "high": 0.3, "canarySamples": 20, "controlSamples": 90,
        "eValue": 3.5, "verdict": "Undecided",
    }  # fmt: skip
    gate = {"name": "quality", "kind": "Metric", "state": "Passing", "message": "1"}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name, "namespace": "default", "uid": uid, "generation": 7,
            "creationTimestamp": AT,
        },
        "spec": {
            "model": {"uri": "pvc://models"},
            "objectives": {"ttft": "2s", "tpot": "50ms", "attainment": "0.95"},
            "variants": [
                {
                    "name": "big", "pricePerHour": "2.5",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ],
        },
        "status": {
            "stableRevision": OLD, "candidateRevision": revision,
            "traffic": [
                {"revision": OLD, "cohort": "Primary", "percent": 80},
                {"revision": revision, "cohort": "Primary", "percent": 20},
            ],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready"},
                {"type": "example.com/Audited", "status": "True", "reason": "Done"},
            ],
            "rollout": {
                "strategy": "Canary", "phase": phase, "phaseTransitionTime": AT, "message": "why",
                "revision": revision, "replicas": 2, "evidence": [evidence], "gates": [gate],
            },
            "scaling": {"desiredReplicas": 2, "message": "why", "lastScaleTime": AT},
        },
    }  # fmt: skip


def child(name, revision, *, variant="", service="chat", is_ready=False):
    """A Deployment of one replica, or a pod."""
    labels = {
        SERVICE_LABEL: service, REVISION_LABEL: revision, ROLE_LABEL: "serve", COHORT_LABEL: "",
        VARIANT_LABEL: variant,
    }  # fmt: skip
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": AT}]
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels,
            "creationTimestamp": AT, "ownerReferences": [{"uid": "u1", "controller": True}],
        },
        "spec": {"replicas": 1, "containers": []},
        "status": {"podIP": "127.0.0.9", "conditions": conditions if is_ready else []},
    }  # fmt: skip
