"""Security contexts of the restricted Pod Security Standard, for all pods that Penstock creates."""

from typing import Any, Final

POD: Final[dict[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER: Final[dict[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
