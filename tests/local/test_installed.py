"""Installed binaries: where they are looked for, and which versions are passed over."""

import functools
import hashlib
import http.server
import io
import tarfile
import threading

import pytest
from tests.support.tools import prometheus
from tests.support.tools.prometheus import PROMETHEUS

from penstock.local import download, installed
from penstock.local.installed import find_installed, installed_version

OUTPUTS = {
    "prometheus": "prometheus, version 2.53.3+ds1 (branch: debian/sid, revision: 2)",
    "kubectl": "Client Version: v1.32.4\nKustomize Version: v5.5.0",
    "kube-apiserver": "Kubernetes v1.36.3",
    "etcd": "etcd Version: 3.6.5\nGit SHA: Not provided",
}


def install(folder, name, output):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def search_path(tmp_path, monkeypatch):
    """Folders that stand for PATH and for the system's; nothing else is installed, nothing is cached."""
    path, system = tmp_path / "path", tmp_path / "system"
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(installed, "SYSTEM_FOLDERS", (str(system),))
    return path, system


@pytest.mark.parametrize("name", OUTPUTS)
def test_versions_as_each_binary_prints_them(search_path, name):
    path, _ = search_path
    expected = {
        "prometheus": (2, 53),
        "kubectl": (1, 32),
        "kube-apiserver": (1, 36),
        "etcd": (3, 6),
    }
    assert installed_version(install(path, name, OUTPUTS[name])) == expected[name]


def test_path_comes_before_system_folders(search_path):
    path, system = search_path
    said = []
    assert find_installed("etcd", said.append) is None
    packaged = install(system, "etcd", OUTPUTS["etcd"])
    assert find_installed("etcd", said.append) == packaged
    own = install(path, "etcd", OUTPUTS["etcd"])
    assert find_installed("etcd", said.append) == own
    assert said == []


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("prometheus, version 2.41.0 (branch: HEAD)", "has version 2.41, older than 2.42"),
        ("prometheus, version  (branch: , revision: unknown)", "does not tell its version"),
    ],
)
def test_an_unsuitable_version_is_passed_over(search_path, output, why):
    path, system = search_path
    own = install(path, "prometheus", output)
    packaged = install(system, "prometheus", OUTPUTS["prometheus"])
    said = []
    assert prometheus.ensure("prometheus", said.append) == packaged
    assert said == [f"{own} {why}: passed over"]


@pytest.fixture
def releases(tmp_path, monkeypatch):
    """The folder of a release site that the download uses."""
    root = tmp_path / "site"
    folder = root / f"v{PROMETHEUS}"
    folder.mkdir(parents=True)
    handler = functools.partial(Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(prometheus, "RELEASES", f"http://127.0.0.1:{server.server_port}")
        yield folder
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def publish(folder, content, sha256=None):
    """Put an archive and its checksum on the site."""
    name = f"prometheus-{PROMETHEUS}.linux-{download.machine()}"
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
        entry = tarfile.TarInfo(f"{name}/prometheus")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    made = hashlib.sha256((folder / f"{name}.tar.gz").read_bytes()).hexdigest()
    (folder / "sha256sums.txt").write_text(f"{sha256 or made}  {name}.tar.gz\n")


def test_prometheus_is_downloaded_once(search_path, releases, monkeypatch):
    monkeypatch.setattr(prometheus, "build", None)
    publish(releases, b"downloaded")
    said = []
    for _ in range(2):
        assert prometheus.ensure("prometheus", said.append).read_bytes() == b"downloaded"
    assert said == [f"downloading prometheus {PROMETHEUS}"]


@pytest.mark.parametrize("failure", ["404", "checksum", "unreachable"])
def test_prometheus_is_built_where_the_download_fails(search_path, releases, monkeypatch, failure):
    if failure == "checksum":
        publish(releases, b"tampered with", sha256="0" * 64)
    if failure == "unreachable":
        monkeypatch.setattr(prometheus, "RELEASES", "http://127.0.0.1:1")
    monkeypatch.setattr(
        prometheus, "build", lambda program, _, folder: (folder / program).write_bytes(b"built")
    )
    said = []
    assert prometheus.ensure("prometheus", said.append).read_bytes() == b"built"
    assert "building from source instead" in said[-1]
