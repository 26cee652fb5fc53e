"""Manifest of the Job that evaluates a canary before it is promoted."""

from copy import deepcopy

from penstock.core.formats.addresses import host_port
from penstock.core.manifests import restricted
from penstock.core.manifests.engine import labels, owner
from penstock.core.spec.rollout import EvaluationSpec
from penstock.core.spec.service import (
    ENGINE_PORT,
    EVALUATION,
    EVALUATION_CONTAINER,
    Object,
    ServiceSpec,
)

GRACE_S = 10


def job_name(spec: ServiceSpec, revision: str) -> str:
    return f"{spec.name}-{revision}-evaluation"


def evaluation_job(
    spec: ServiceSpec, wanted: EvaluationSpec, revision: str, stable: str, address: str
) -> Object:
    """The evaluation Job: one attempt, in a pod without a service account token.

    address: IP of a ready pod of the canary. The Job's pod has the labels of the service's other pods, so
    the operator's pod watch reports its end.
    """
    own = labels(spec, revision, EVALUATION)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(spec, revision),
            "namespace": spec.namespace,
            "labels": own,
            "ownerReferences": [owner(spec)],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": max(1, round(wanted.timeout_s)),
            "template": {
                "metadata": {"labels": own},
                "spec": _pod(wanted, _environment(spec, revision, stable, address)),
            },
        },
    }


def _environment(spec: ServiceSpec, revision: str, stable: str, address: str) -> dict[str, str]:
    return {
        "PENSTOCK_CANARY_URL": f"http://{host_port(address, ENGINE_PORT)}",
        "PENSTOCK_MODEL": spec.model_name,
        "PENSTOCK_NAMESPACE": spec.namespace,
        "PENSTOCK_SERVICE": spec.name,
        "PENSTOCK_REVISION": revision,
        "PENSTOCK_STABLE_REVISION": stable,
    }


def _pod(wanted: EvaluationSpec, environment: dict[str, str]) -> Object:
    env: list[Object] = [{"name": name, "value": value} for name, value in environment.items()]
    for variable in wanted.env:
        if variable.secret is None:
            env.append({"name": variable.name, "value": variable.value})
        else:
            name, key = variable.secret
            reference = {"secretKeyRef": {"name": name, "key": key}}
            env.append({"name": variable.name, "valueFrom": reference})
    container: Object = {
        "name": EVALUATION_CONTAINER,
        "image": wanted.image,
        "env": env,
        "resources": wanted.resources.manifest(),
        "securityContext": deepcopy(restricted.CONTAINER),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - the pod's own
    }
    if wanted.command:
        container["command"] = list(wanted.command)
    if wanted.args:
        container["args"] = list(wanted.args)
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": deepcopy(restricted.POD),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
