"""Logs of a cluster with kubelets: of components from its folder, of pods by kubectl."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.local import record


def test_logs_of_pods_are_left_to_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    (tmp_path / "clusters").mkdir()
    cluster = record.create("real", 77, {}, "kubelet", 1)
    cluster.logs.mkdir()
    (cluster.logs / "penstock-node-0-kubelet.log").write_text("its log")

    def logs(source: str) -> str:
        return CliRunner().invoke(build("local"), ["local", "logs", source, "--name=real"]).output

    assert logs("penstock-node-0-kubelet") == "its log"
    known = "Components: penstock-node-0-kubelet. Of pods: use `kubectl logs`"
    assert known in " ".join(logs("chat").split())
