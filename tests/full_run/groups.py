"""Which tests of a full run one worker runs together, and which start first."""

import pytest
from xdist.scheduler import LoadScopeScheduling

# Groups of tests to start first, longest first, so that no worker ends long after the others. Groups
# that mostly wait alternate with groups that mostly compute.
LONGEST = (
    "e2e/adapters",
    "tests/engine_model",
    "e2e/others",
    "e2e/documentation",
    "tests/engine_server",
    "tests/controller",
    "e2e/helm_install",
    "tests/local",
    "tests/engine_structured",
    "tests/prometheus",
    "tests/gateway",
    "tests/sim",
    "tests/engine_clients",
    "tests/core/scaling",
)
# Scenarios that share a cluster with Penstock, by their group. Folders of e2e that are not here, and start no
# cluster of their own, share that of "e2e/others".
SCENARIOS = {
    "e2e/adapter_rollouts": "e2e/adapters",
    "e2e/adapters": "e2e/adapters",
    "e2e/dedicated_pool": "e2e/adapters",
    "e2e/documentation": "e2e/documentation",
    "e2e/helm_install": "e2e/helm_install",
}


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Scheduler that gives a group of tests to one worker, so that shared engines or clusters start once."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """The group of a test: tests/gateway, tests/core/scaling, or that of its scenario."""
    folders = nodeid.split("::")[0].split("/")[:-1]
    folder = "/".join(folders[: 3 if folders[:2] == ["tests", "core"] else 2])
    return SCENARIOS.get(folder, "e2e/others") if folder.startswith("e2e/") else folder


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort tests by group, the longest groups first."""
    groups: dict[str, list[pytest.Item]] = {name: [] for name in LONGEST}
    for item in items:
        groups.setdefault(group(item.nodeid), []).append(item)
    return [item for tests in groups.values() for item in tests]
