"""Clusters start and end: several at once, after crashes, and without leftovers."""

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import httpx
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.local import cluster as clusters
from penstock.local import processes

pytestmark = pytest.mark.cluster


def name() -> str:
    return f"test-{secrets.token_hex(3)}"


def test_two_clusters_live_side_by_side_and_leave_nothing() -> None:
    """Removing clusters leaves no processes or files, even if the components of one have died."""
    first, second = name(), name()
    try:
        one = clusters.up(first, say=lambda _: None)
        two = clusters.up(second, say=lambda _: None)
        assert one.network != two.network
        printed = CliRunner().invoke(build("local"), ["local", "env", "--name", first]).stdout
        assert printed.splitlines()[:2] == [
            f"export KUBECONFIG={one.kubeconfig}", f"export PENSTOCK_URL={one.gateway_url}/v1",
        ]  # fmt: skip
        assert clusters.dead_components(one) == clusters.dead_components(two) == []
        assert one.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert one.folder.stat().st_mode & 0o777 == 0o700
        for component in ("node-agent", "apiserver"):
            for process in processes.find(two.cluster_id, component):
                process.kill()
        time.sleep(0.3)
        assert set(clusters.dead_components(two)) >= {"apiserver", "node-agent"}
        assert clusters.dead_components(one) == []
    finally:
        clusters.down(first)
        clusters.down(second)
    for each in (one, two):
        assert processes.find(each.cluster_id) == []
        assert not each.folder.exists()


def test_a_cluster_is_up_only_if_its_api_server_answers() -> None:
    """An API server that ends runs for up to a minute without answering."""
    wanted = name()
    try:
        made = clusters.up(wanted, say=lambda _: None)
        assert clusters.faults(made) == ""
        (server,) = processes.find(made.cluster_id, "apiserver")
        said: list[str] = []

        def say(text: str, then: Callable[[], None]) -> None:
            said.append(text)
            if "does not answer" in text:
                then()

        server.suspend()
        assert clusters.faults(made) == "not answering: apiserver"
        clusters.up(wanted, say=lambda text: say(text, server.resume))
        waits = "the API server does not answer: waiting until it does, or has ended"
        assert said == [waits, f"cluster {wanted!r} is already up"]
        said.clear()
        server.suspend()
        clusters.up(wanted, say=lambda text: say(text, server.kill))
        missing = f"cluster {wanted!r} runs without apiserver: starting what is missing"
        assert said == [waits, missing, "starting apiserver", "waiting for the node"]
        assert clusters.faults(made) == ""
    finally:
        clusters.down(wanted)


def test_a_hub_mirror_is_started_again_with_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision for a mirror is made once, also for a cluster that was started without Penstock."""
    wanted = name()
    monkeypatch.setattr(clusters, "pods_reach_hub", lambda node: False)
    try:
        bare = clusters.up(wanted, say=lambda _: None)
        assert bare.has_hub_mirror is None
        made = clusters.up(wanted, say=lambda _: None, serves_hub=True)
        assert made.has_hub_mirror is True
        assert httpx.get(made.hub_url, trust_env=False).status_code == 404
        (mirror,) = processes.find(made.cluster_id, "hub-mirror")
        mirror.kill()
        mirror.wait(10)
        assert clusters.faults(made) == "not running: hub-mirror"
        monkeypatch.setattr(clusters, "pods_reach_hub", lambda node: True)
        assert clusters.up(wanted, say=lambda _: None, serves_hub=True) == made
        assert clusters.faults(made) == ""
    finally:
        clusters.down(wanted)
    assert processes.find(made.cluster_id) == []


def test_an_interrupted_up_removes_everything() -> None:
    wanted = name()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "local", "up", "--bare", "--name", wanted],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "starting controller-manager" in line:
            process.send_signal(signal.SIGINT)
            break
    process.stdout.close()
    assert process.wait(60) != 0
    assert wanted not in [made.name for made in clusters.list_clusters()]
    assert not (clusters.clusters_root() / wanted).exists()


def test_a_cluster_that_another_process_starts_is_left_alone() -> None:
    wanted = name()
    command = [sys.executable, "-m", "penstock", "local", "up", "--bare", "--name", wanted]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "starting etcd" in next(line for line in process.stdout if "etcd" in line)
        with pytest.raises(clusters.ClusterError, match="Another process is starting"):
            clusters.up(wanted, say=lambda _: None)
        process.stdout.read()
        assert process.wait() == 0
        said: list[str] = []
        clusters.up(wanted, say=said.append)
        assert said == [f"cluster {wanted!r} is already up"]
    finally:
        process.kill()
        process.communicate()
        clusters.down(wanted)
    assert not (clusters.clusters_root() / wanted).exists()


def test_a_wait_for_the_network_of_another_cluster_is_announced() -> None:
    wanted = name()

    def say(text: str) -> None:
        raise InterruptedError(text)  # as Ctrl-C

    with FileLock(clusters.clusters_root() / ".lock"), pytest.raises(InterruptedError) as stopped:
        clusters.up(wanted, say=say)
    assert str(stopped.value) == (
        "waiting for another Penstock process, which chooses the network of a cluster"
    )
    assert clusters.find(wanted) is None


def test_an_invalid_name_is_refused() -> None:
    with pytest.raises(clusters.ClusterError, match="not a valid cluster name"):
        clusters.up("../escape", say=lambda _: None)
