"""The product's pods, for containers that have their restrictions."""

from collections.abc import Mapping
from typing import Any

from penstock.chart.rendering.install import image_values, install_manifests
from penstock.core.manifests import restricted

Pod = Mapping[str, Any]


def engine_pod() -> Pod:
    """The restrictions of an engine's pod, as a pod with a folder for temporary files."""
    mount = {"name": "tmp", "mountPath": "/tmp"}
    return {
        "securityContext": restricted.POD,
        "containers": [{"securityContext": restricted.CONTAINER, "volumeMounts": [mount]}],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "terminationGracePeriodSeconds": 60,
    }


def chart_pods(image: str) -> dict[str, Pod]:
    """Pods of operator and gateway as the chart renders them, by the name of their container."""
    pods = [
        each["spec"]["template"]["spec"]
        for each in install_manifests(image_values(image))
        if each["kind"] == "Deployment"
    ]
    return {pod["containers"][0]["name"]: pod for pod in pods}
