"""Nodes with a kubelet are refused where they cannot run, before anything is made."""

import os
from pathlib import Path

import pytest

from penstock.local import cluster as clusters
from penstock.local import record
from penstock.local.kubelet import tools
from penstock.local.record import ClusterError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_user_without_root_is_told_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="needs root"):
        clusters.up("real", say=print, node="kubelet")
    assert not list(cache.iterdir())


def test_missing_packages_are_named_and_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError) as refused:
        tools.require_packages(may_install=False, say=print)
    assert all(package in str(refused.value) for package in tools.PACKAGES.values())
    assert "--install-packages" in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"node": "kubelet"}, "another kind of node, agent"),
        ({"num_nodes": 2}, "another number of nodes, 1"),
        ({"allocatable": {"nvidia.com/gpu": "8"}}, "another set of resources"),
    ],
)
def test_an_existing_cluster_keeps_its_nodes(
    asked: dict[str, object], said: str, cache: Path
) -> None:
    (cache / "clusters").mkdir()
    record.create("real", 77, {}, "agent", 1)
    with pytest.raises(ClusterError, match=said):
        clusters.up("real", say=print, **asked)  # type: ignore[arg-type]


def test_node_agents_are_one(cache: Path) -> None:
    with pytest.raises(ClusterError, match="--node kubelet"):
        clusters.up("real", say=print, num_nodes=2)
    assert not list(cache.iterdir())
