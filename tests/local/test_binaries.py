"""Binaries: checksums, arguments of the build, and the cache."""

import functools
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from penstock.local import binaries
from penstock.local.binaries import ensure_binaries
from penstock.local.cached_folder import ensure_folder
from penstock.local.download import DownloadFailed, download_archived, verify
from penstock.local.gobuild import SHARED_CACHE, Go, kubernetes_go_mod, kubernetes_tools_go
from penstock.local.locks import file_lock
from penstock.local.versions import BINARIES

ARCHIVE = "tool-1.linux.tar.gz"


def test_a_wrong_checksum_is_refused() -> None:
    good = hashlib.sha256(b"binary").hexdigest()
    verify(b"binary", f"{good}  kubectl", "kubectl")
    with pytest.raises(DownloadFailed, match="does not match"):
        verify(b"other", good, "kubectl")
    with pytest.raises(DownloadFailed):
        verify(b"binary", "", "kubectl")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def release(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """(URL, folder) of a served release: an archive, and a file with checksums of two archives."""
    folder = tmp_path / "release"
    folder.mkdir()
    with tarfile.open(folder / ARCHIVE, "w:gz") as tar:
        for name, content in {"tool-1/tool.yml": b"no", "tool-1/tool": b"binary"}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    digest = hashlib.sha256((folder / ARCHIVE).read_bytes()).hexdigest()
    (folder / "sums").write_text(f"{'0' * 64}  other.tar.gz\n{digest}  {ARCHIVE}\n")
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


def test_builds_of_a_run_can_share_their_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def caches(work: str) -> list[str]:
        return Go(tmp_path / work)(tmp_path, "env", "GOCACHE", "GOMODCACHE").split()

    monkeypatch.delenv(SHARED_CACHE, raising=False)
    assert caches("one") == [f"{tmp_path}/one/gocache", f"{tmp_path}/one/gopath/mod"]
    monkeypatch.setenv(SHARED_CACHE, f"{tmp_path}/all")
    assert caches("one") == [f"{tmp_path}/all/gocache", f"{tmp_path}/all/gopath/mod"]


def test_one_binary_out_of_an_archive(release: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = release
    binary = tmp_path / "tool"
    download_archived(url, ARCHIVE, "sums", binary)
    assert binary.read_bytes() == b"binary"
    assert binary.stat().st_mode & 0o777 == 0o755
    for sums in (f"{'0' * 64}  {ARCHIVE}\n", "\n"):
        (folder / "sums").write_text(sums)
        with pytest.raises(DownloadFailed, match="does not match"):
            download_archived(url, ARCHIVE, "sums", tmp_path / "worse" / "tool")
    with pytest.raises(DownloadFailed, match="404"):
        download_archived(f"{url}/elsewhere", ARCHIVE, "sums", binary)


def test_a_site_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match="cannot be reached"):
        download_archived("http://127.0.0.1:1", ARCHIVE, "sums", tmp_path / "tool")


def test_what_is_kept_is_made_once_and_whole(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "half").touch()
        if len(made) == 1:
            raise DownloadFailed("gone")
        (folder / "whole").touch()

    with pytest.raises(DownloadFailed):
        ensure_folder(tmp_path / "bin" / "tool", make, print)
    assert not any(path.is_dir() for path in (tmp_path / "bin").iterdir())
    for _ in range(2):
        assert (ensure_folder(tmp_path / "bin" / "tool", make, print) / "whole").exists()
    assert len(made) == 2


def test_staged_libraries_become_modules_of_the_same_release() -> None:
    upstream = "replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tother => ../x\n)\n"
    text = kubernetes_go_mod(upstream, "1.36.3")
    assert "replace k8s.io/api => k8s.io/api v0.36.3" in text
    assert "other" not in text
    assert "kube-scheduler" in kubernetes_tools_go()


def test_only_missing_binaries_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl is installed: the cache is filled with the rest, then with kubectl when that is gone."""
    installed = {"kubectl": tmp_path / "kubectl"}
    installed["kubectl"].touch()
    fetched: list[Sequence[str]] = []

    def download(folder: Path, names: Sequence[str], _: object) -> None:
        fetched.append(names)
        for name in names:
            (folder / name).touch()

    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries, "find_installed", lambda name, _: installed.get(name))
    monkeypatch.setattr(binaries, "download", download)
    for _ in range(2):
        found = ensure_binaries(lambda _: None)
        assert found["kubectl"] == installed["kubectl"]
    installed.clear()
    for _ in range(2):
        found = ensure_binaries(lambda _: None)
        assert set(found) == set(BINARIES)
    assert [set(names) for names in fetched] == [set(BINARIES) - {"kubectl"}, {"kubectl"}]


def test_a_wait_for_another_process_is_announced(tmp_path: Path) -> None:
    lock, said = FileLock(tmp_path / "lock"), list[str]()

    def say(text: str) -> None:
        said.append(text)
        lock.release()

    with file_lock(tmp_path / "lock", say, "downloads it"):
        assert said == []
    lock.acquire()
    with file_lock(tmp_path / "lock", say, "downloads it"):
        assert said == ["waiting for another Penstock process, which downloads it"]
