"""A cluster that lost components is started again, with its objects."""

import secrets
from collections.abc import Iterator

import psutil
import pytest

from penstock.clients.kubernetes.client import connect
from penstock.clients.kubernetes.resources import CONFIG_MAPS
from penstock.local import cluster as clusters
from penstock.local import processes
from penstock.local.cluster import Cluster
from penstock.local.record import create
from penstock.local.startup import CONTROL_PLANE, components_of

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A cluster for this module only, whose processes tests may kill."""
    with clusters.temporary("restart", say=lambda _: None) as made:
        yield made


@pytest.mark.parametrize("lost", [["node-agent"], ["etcd"], [*CONTROL_PLANE, "node-agent"]])
async def test_dead_components_are_restarted_and_objects_stay(
    own_cluster: Cluster, lost: list[str]
) -> None:
    name = f"kept-{secrets.token_hex(3)}"
    async with await connect(own_cluster.kubeconfig) as kube:
        await kube.create(CONFIG_MAPS, "default", {"metadata": {"name": name}})
    killed = [process for each in lost for process in processes.find(own_cluster.cluster_id, each)]
    living = {
        process.pid
        for each in components_of(own_cluster)
        if each not in lost
        for process in processes.find(own_cluster.cluster_id, each)
    }
    for process in killed:
        process.kill()
    psutil.wait_procs(killed, timeout=10)
    assert set(clusters.dead_components(own_cluster)) == set(lost)
    said: list[str] = []
    again = clusters.up(own_cluster.name, say=said.append)
    assert again == own_cluster
    assert all(any(each in line for line in said) for each in lost)
    assert clusters.dead_components(own_cluster) == []
    assert living <= {process.pid for process in processes.find(own_cluster.cluster_id)}
    async with await connect(own_cluster.kubeconfig) as kube:
        assert (await kube.get(CONFIG_MAPS, "default", name))["metadata"]["name"] == name


def test_other_resources_for_an_existing_cluster_are_refused(own_cluster: Cluster) -> None:
    with pytest.raises(clusters.ClusterError, match="another set of resources"):
        clusters.up(own_cluster.name, say=lambda _: None, allocatable={"nvidia.com/gpu": "1"})
    assert clusters.dead_components(own_cluster) == []


def test_an_up_interrupted_before_it_wrote_its_files_continues() -> None:
    """Tests run in random order, so it replaces a cluster that no other test uses."""
    with clusters.temporary("interrupted", say=lambda _: None) as made:
        clusters.down(made.name)
        record = create(made.name, made.network, {})
        again = clusters.up(made.name, say=lambda _: None)
        assert again == record
        assert clusters.dead_components(again) == []
