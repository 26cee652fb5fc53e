"""Files of a model that the engine's user may not read are refused by name, with what to change."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from tests.engine_server.preflight.preflight_models import shown
from typer.testing import CliRunner

import penstock_engine.server.option_checks
import penstock_engine.text.template  # noqa: F401
from penstock_engine.cli import app

NOBODY = 65534
HINT = "let this user read it, or set runAsUser or fsGroup in spec.template.spec.securityContext"

Invoke = Callable[..., Result]


@pytest.fixture
def folder(model_dir: Path) -> Iterator[Path]:
    """A copy of the model, in a folder that every user may search."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        copy = Path(place) / "model"
        shutil.copytree(model_dir, copy, copy_function=shutil.copyfile)
        (copy / "generation_config.json").write_text("{}")
        (copy / "chat_template.jinja").write_text("{{ messages }}")
        # The modules that this imports cannot be read by another user.
        assert CliRunner().invoke(app, ["preflight", str(copy)]).exit_code == 0
        yield copy
        copy.chmod(0o755)


@contextmanager
def without_rights() -> Iterator[None]:
    """Run the block as a user other than root, who may read everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def invoke(*args: str) -> Result:
    with without_rights():
        return CliRunner().invoke(app, args)


def reader() -> str:
    with without_rights():
        return f"user {os.geteuid()} of group {os.getegid()}"


@pytest.mark.parametrize(
    "name",
    [
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja", "model.safetensors",
    ],
)  # fmt: skip
def test_preflight_names_the_file(folder: Path, name: str) -> None:
    (folder / name).chmod(0)
    os.utime(folder / name, (0, 0))  # a file that has not changed is not read again
    result = invoke("preflight", str(folder))
    assert result.exit_code == 1
    problem = f"{folder / name} cannot be read: Permission denied for {reader()}"
    verdict = json.loads(result.stdout)
    assert verdict == {"ok": False, "reason": "ReadFailed", "message": problem, "remedies": {}}
    assert shown(verdict)["message"] == f"{problem}: {HINT}"


@pytest.mark.parametrize("scope", ["model", "files"])
def test_preflight_names_a_folder_that_cannot_be_searched(folder: Path, scope: str) -> None:
    folder.chmod(0o600)
    result = invoke("preflight", str(folder), "--scope", scope)
    message = f"{folder} cannot be read: Permission denied for {reader()}: {HINT}"
    assert shown(json.loads(result.stdout))["message"] == message


def test_preflight_names_a_configuration_of_another_program(folder: Path) -> None:
    (folder / "config.json").chmod(0)
    result = invoke("preflight", str(folder), "--scope", "files")
    assert json.loads(result.stdout)["reason"] == "ReadFailed"


def test_preflight_names_a_gguf_file(folder: Path) -> None:
    path = folder / "model.gguf"
    path.write_bytes(b"GGUF")
    path.chmod(0)
    result = invoke("preflight", str(path))
    message = f"{path} cannot be read: Permission denied for {reader()}: {HINT}"
    assert shown(json.loads(result.stdout))["message"] == message


def test_preflight_names_a_chat_template_of_the_flags(folder: Path) -> None:
    path = folder / "other.jinja"
    path.touch(0)
    result = invoke("preflight", str(folder), "--chat-template", str(path))
    assert json.loads(result.stdout)["reason"] == "ReadFailed"


def test_serve_ends_with_the_name_of_the_file(folder: Path) -> None:
    (folder / "config.json").chmod(0)
    result = invoke("serve", str(folder))
    assert result.exit_code == 1
    path = folder / "config.json"
    message = f"ReadFailed: {path} cannot be read: Permission denied for {reader()} ({folder})\n"
    assert result.stderr == message
