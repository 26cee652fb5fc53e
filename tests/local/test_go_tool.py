"""Tools that are built from Go are built once, and completely."""

import os
from pathlib import Path

import pytest

from penstock.local.go_tool import ensure_built
from penstock.local.gobuild import BuildFailed


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder for programs, and a PATH on which `go` is the only one."""
    programs = tmp_path / "path"
    programs.mkdir()
    (programs / "go").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bin"


def build(work: Path, folder: Path) -> None:
    (work / "source").touch()
    (folder / "tool").touch()


def fail(work: Path, folder: Path) -> None:
    build(work, folder)
    raise BuildFailed("no module")


def visible(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if not name.endswith(".lock")]


def test_a_folder_is_built_once(cache: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        assert ensure_built("tool-1", "tool 1", build, said.append) == cache / "tool-1"
    assert said == ["building tool 1"]
    assert visible(cache) == ["tool-1"]
    assert visible(cache / "tool-1") == ["tool"]


def test_a_failed_build_leaves_nothing(cache: Path) -> None:
    with pytest.raises(BuildFailed, match="no module"):
        ensure_built("tool-1", "tool 1", fail, print)
    assert visible(cache) == []


def test_a_missing_toolchain_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(BuildFailed, match="no Go toolchain to build tool 1: install Go"):
        ensure_built("tool-1", "tool 1", build, print)
    assert visible(cache) == []
