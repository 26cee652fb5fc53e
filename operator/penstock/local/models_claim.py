"""Claims on folders of this machine, such as the claim `models`: read-only volumes for engine pods."""

from pathlib import Path
from typing import Any

CLAIM = "models"


def models_claim(folder: Path, namespace: str = "default") -> list[dict[str, Any]]:
    """Build a PersistentVolume on the folder, and the PersistentVolumeClaim `models` bound to it."""
    return folder_claim(CLAIM, folder, namespace)


def folder_claim(claim_name: str, folder: Path, namespace: str = "default") -> list[dict[str, Any]]:
    """Build a PersistentVolume on the folder, and a PersistentVolumeClaim bound to it."""
    name = f"{claim_name}-{namespace}"
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
            "claimRef": {"namespace": namespace, "name": claim_name},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": size},
        },
    }
    return [volume, claim]
