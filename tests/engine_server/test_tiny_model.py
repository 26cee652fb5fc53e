"""The tiny model is trained once for equal sources, and each test has a copy of its own."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import tiny_model


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders into which models were trained, in a cache of the test."""
    folders: list[Path] = []

    def make(out: Path, *_: Any, **__: Any) -> None:
        folders.append(out)
        out.mkdir()
        (out / "config.json").write_text(f"model {len(folders)}")

    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tiny_model, "make", make)
    return folders


def make_model(folder: Path) -> str:
    tiny_model.make_tiny_model(folder)
    return (folder / "config.json").read_text()


def test_equal_sources_are_trained_once(tmp_path: Path, trained: list[Path]) -> None:
    assert make_model(tmp_path / "a") == "model 1"
    (tmp_path / "a" / "config.json").write_text("damaged by a test")
    assert make_model(tmp_path / "b") == "model 1"
    assert len(trained) == 1


def test_other_sources_are_trained_again(
    tmp_path: Path, trained: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path / "a")
    other = tmp_path / "other.md"
    other.write_text("Another text.")
    monkeypatch.setattr(tiny_model, "ROOT", Path("/"))
    monkeypatch.setattr(tiny_model, "TEXTS", (other,))
    monkeypatch.setattr(tiny_model, "ENGINE", tmp_path)
    assert make_model(tmp_path / "b") == "model 2"
    other.write_text("An edited text.")
    assert make_model(tmp_path / "c") == "model 3"
    assert make_model(tmp_path / "d") == "model 3"


def test_the_models_of_the_last_sources_are_kept(
    tmp_path: Path, trained: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(tiny_model.NUM_KEPT + 2):
        monkeypatch.setattr(tiny_model, "LIBRARIES", ("torch",) * number)
        make_model(tmp_path / str(number))
    kept = [each for each in (tmp_path / "cache" / "tiny_models").iterdir() if each.is_dir()]
    assert len(kept) == tiny_model.NUM_KEPT


def test_a_training_that_fails_is_not_kept(
    tmp_path: Path, trained: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(out: Path, *_: Any, **__: Any) -> None:
        out.mkdir()
        raise OSError("no space is left")

    with monkeypatch.context() as patched:
        patched.setattr(tiny_model, "make", fail)
        with pytest.raises(OSError, match="no space"):
            make_model(tmp_path / "a")
    assert make_model(tmp_path / "a") == "model 1"
