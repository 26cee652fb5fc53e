"""Fixtures: Penstock on a real cluster, shared by all scenarios, whose nodes `--node` chooses.

Each folder uses model names of its own. The namespace of a scenario may be deleted while the next one runs,
and until then its older services and adapters have their short names in all namespaces.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from e2e.nodes import temporary_cluster, values
from tests.support.engine.forked_command import forked_engine_command

from penstock.clients.kubernetes.client import connect
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage
from penstock.local.cluster import Cluster, get
from penstock.local.install import install
from penstock.local.node.container import COMMANDS
from penstock.local.record import NodeKind

ROOT = Path(__file__).parents[1]
NUM_GPUS = 2  # of the node


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--node",
        choices=("agent", "kubelet"),
        default="agent",
        help="run the scenarios of e2e with Penstock's node agent, or with kubelets and containers "
        "(needs root, and the images of `make images`)",
    )
    parser.addoption(
        "--cluster",
        metavar="NAME",
        help="run the scenarios of e2e in a local cluster that is up, in place of one that --node chooses. "
        "Penstock is installed there and stays. Engines start as those of pods do, not by fork",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what has the marker `node_agent` on kubelets, with its reason."""
    if _node(config) == "agent":
        return
    for item in items:
        if marker := item.get_closest_marker("node_agent"):
            item.add_marker(pytest.mark.skip(reason=f"only with the node agent: {marker.args[0]}"))


def _node(config: pytest.Config) -> NodeKind:
    if running := config.getoption("--cluster", None):
        return get(running).node
    chosen: NodeKind = config.getoption("--node", "agent")
    return chosen


@pytest.fixture(scope="session")
def node(pytestconfig: pytest.Config) -> NodeKind:
    """The kind of nodes that the scenarios run on."""
    return _node(pytestconfig)


@pytest.fixture(scope="session")
def models() -> Path:
    """The demo's model, from the cache if it is there."""
    return ensure_model(ROOT / "docs")


@pytest.fixture(scope="module")
def pod_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder that pods of any user may read. Other folders of pytest are this user's alone."""
    made = tmp_path_factory.mktemp("pods")
    made.chmod(0o755)
    return made


@pytest.fixture(scope="session")
def penstock_cluster(pytestconfig: pytest.Config, node: NodeKind) -> Iterator[Cluster]:
    """A cluster with Penstock.

    Engines of the node agent start by fork. Those of pages and of the chart's tests start as a pod's do.
    """
    with ExitStack() as stack:
        if running := pytestconfig.getoption("--cluster", None):
            made = get(running)
        else:
            with pytest.MonkeyPatch.context() as patch:
                if node == "agent":
                    patch.setenv(COMMANDS, str(stack.enter_context(forked_engine_command())))
                made = stack.enter_context(temporary_cluster("e2e", node, gpus=NUM_GPUS))
        asyncio.run(install(made, say=lambda _: None, values=values(made)))
        yield made


@pytest.fixture
async def stage(penstock_cluster: Cluster, models: Path) -> AsyncIterator[Stage]:
    async with await connect(penstock_cluster.kubeconfig) as kube:
        made = Stage(penstock_cluster, kube)
        made.mount_models(models)
        try:
            yield made
        finally:
            made.kubectl("delete", "psvc", "--all", "--ignore-not-found")
            await made.close()
