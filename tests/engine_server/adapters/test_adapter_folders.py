"""Tests of the folders that clients may name as lora_path."""

import json
from pathlib import Path

import pytest

from penstock_engine.core.errors import ModelError
from penstock_engine.lora.adapter_files import AdapterFolder
from penstock_engine.server.adapters.folders import MOUNTS_VARIABLE, AdapterFolders
from penstock_engine.server.transport.errors import RequestError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "law").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "root" / "escape").symlink_to(tmp_path / "secret")
    (tmp_path / "root" / "alias").symlink_to("law")
    return tmp_path / "root"


def test_paths_are_relative_to_the_root_or_absolute_within_it(root: Path) -> None:
    folders = AdapterFolders(root, {})
    for path in ("law", "./law/", "poetry/../law", str(root / "law")):
        assert folders.resolve(path) == AdapterFolder(root / "law", root)
    with pytest.raises(ModelError, match="no adapter_config"):
        folders.resolve("alias").check_exists()


@pytest.mark.parametrize("path", ["escape", "escape/x", "escape/x/y"])
def test_links_that_lead_out_are_refused_alike(root: Path, path: str) -> None:
    with pytest.raises(ModelError, match="leads out of") as refused:
        AdapterFolders(root, {}).resolve(path).check_exists()
    assert refused.value.reason == "OutsideLoraDir"


@pytest.mark.parametrize("path", ["../secret", "/etc", "law/../../secret", "\x00"])
def test_paths_that_lead_out_are_refused_alike(root: Path, path: str) -> None:
    with pytest.raises(RequestError) as refused:
        AdapterFolders(root, {}).resolve(path)
    assert refused.value.status == 404
    assert refused.value.message == "there is no such lora_path in --lora-dir"


def test_without_a_root_nothing_is_loaded() -> None:
    with pytest.raises(RequestError, match="--lora-dir"):
        AdapterFolders(None, {}).resolve("law")


def test_paths_below_a_mount_are_those_of_its_folder(root: Path) -> None:
    mounts = {"/adapters/pvc/a": str(root), "/models": "/somewhere"}
    folders = AdapterFolders(Path("/adapters"), {MOUNTS_VARIABLE: json.dumps(mounts)})
    for path in ("/adapters/pvc/a/law", "pvc/a/law"):
        assert folders.resolve(path) == AdapterFolder(root / "law", root)
    for path in ("/models/x", "/adapters/../models/x"):
        with pytest.raises(RequestError):
            folders.resolve(path)
    with pytest.raises(ModelError, match="leads out of"):
        folders.resolve("/adapters/pvc/a/escape").check_exists()
    other = Path("/adapters/pvc/b/law")
    assert folders.resolve(str(other)) == AdapterFolder(other, Path("/adapters"))
