"""Ends processes that start others meanwhile, without a control plane."""

from pathlib import Path

import pytest

from penstock.clients.machine.clock import sleep
from penstock.local import cluster as clusters
from penstock.local import processes, record

# Its child ends on SIGTERM, and it starts another one at once.
RESTARTS_ITS_CHILD = "trap : TERM; echo up; while :; do sleep 900; done"


def test_processes_started_while_a_cluster_ends_are_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holds without a node agent that would end its pods."""
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    record.clusters_root().mkdir(parents=True)
    cluster = record.create("stubborn", 200, {})
    log = tmp_path / "log"

    def find() -> list[object]:
        return [*processes.find(cluster.cluster_id)]

    processes.spawn(
        ["/bin/bash", "-c", RESTARTS_ITS_CHILD],
        cluster_id=cluster.cluster_id, component=processes.POD, log=log,
    )  # fmt: skip
    try:
        for _ in range(200):
            if len(find()) == 2 and log.read_text() == "up\n":
                break
            sleep(0.05)
        assert len(find()) == 2
        assert clusters.down("stubborn")
        assert find() == []
    finally:
        processes.kill(lambda: processes.find(cluster.cluster_id))
