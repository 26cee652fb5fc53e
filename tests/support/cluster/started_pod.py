"""An engine pod that became ready, with the times of its start."""

from typing import Any


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def ready_pod(fetch: Any = None, **engine: Any) -> Any:
    """A pod that a node had after 2 s, whose engine started after 100 s and was ready after 130 s."""
    running = {"name": "engine", "state": {"running": {"startedAt": at(100)}}, "restartCount": 0}
    return {
        "metadata": {"name": "a", "creationTimestamp": at(0)},
        "status": {
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(2)},
                {"type": "Ready", "status": "True", "lastTransitionTime": at(130)},
            ],
            "containerStatuses": [running | engine],
            "initContainerStatuses": [fetch] if fetch else [],
        },
    }
