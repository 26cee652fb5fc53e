"""The claim `models`: a folder of this machine as a read-only volume with models."""

from pathlib import Path
from typing import Any

CLAIM = "models"


def models_claim(folder: Path, namespace: str = "default") -> list[dict[str, Any]]:
    """Build a PersistentVolume on the folder, and the PersistentVolumeClaim `models` bound to it."""
    name = f"{CLAIM}-{namespace}"
    size = {"storage": "10Gi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": CLAIM},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": size},
        },
    }
    return [volume, claim]
