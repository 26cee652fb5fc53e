"""`penstock-engine preflight`: its output, its exit status, and what it imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine_server.preflight.preflight_models import (
    GIB,
    MIB,
    run,
    shown,
    with_file,
)

from penstock_engine.memory.preflight import find_model


def test_a_template_that_cannot_be_compiled_is_refused(folder: Path) -> None:
    """The advice fits the model's own templates too."""
    with_file("chat_template.jinja", b"{% if %}")(folder)
    done = run(folder, "--memory-limit-bytes", str(4 * GIB))
    verdict = shown(json.loads(done.stdout))
    assert verdict["reason"] == "BadChatTemplate"
    assert verdict["message"].startswith("chat_template.jinja: line 1: ")
    advice = ": set spec.engine.parsers.chatTemplate to a template that can be compiled"
    assert verdict["message"].endswith(advice)


def test_the_command_writes_its_verdict_to_stdout_and_the_termination_log(
    model_dir: Path, tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    done = run(
        model_dir, "--termination-log", log, "--max-model-len", "512",
        PENSTOCK_MEMORY_LIMIT_BYTES=str(2 * GIB),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(log.read_text())
    assert json.loads(done.stdout)["max_model_len"] == 512


def test_the_command_exits_with_1_on_an_error(model_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    done = run(model_dir, "--termination-log", log, PENSTOCK_MEMORY_LIMIT_BYTES=str(64 * MIB))
    assert done.returncode == 1
    assert json.loads(log.read_text())["reason"] == "MemoryTooSmall"
    accelerator = ("--device", "cuda", "--accelerator-memory-bytes", str(64 * MIB))
    assert json.loads(run(model_dir, *accelerator).stdout)["reason"] == "MemoryTooSmall"
    flag = run(model_dir, "--memory-limit-bytes", str(64 * MIB))
    assert json.loads(flag.stdout)["reason"] == "MemoryTooSmall"


def test_preflight_imports_neither_torch_nor_transformers(model_dir: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from penstock_engine.options.config import EngineConfig; "
        "from penstock_engine.memory.preflight import preflight; "
        f"assert preflight(EngineConfig(model_dir=Path({str(model_dir)!r})), "
        f"memory_limit_bytes={4 * GIB})['ok']; "
        f"assert preflight(EngineConfig(model_dir=Path({str(model_dir)!r}), device='cuda'), "
        f"accelerator_memory_bytes={4 * GIB})['ok']; "
        "print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"config.json": "{}"}, "Found"),
        ({"params.json": "{}"}, "Found"),  # of Mistral
        ({"model.gguf": ""}, "Found"),
        ({"config.json": "{", "params.json": "{}"}, "BadConfig"),
        ({"params.json": "\xff"}, "BadConfig"),
        ({"config.json": "[" * 100_000}, "BadConfig"),
        ({"config.json": "[]"}, "BadConfig"),
        ({"model.safetensors": ""}, "NotAModel"),
    ],
)
def test_the_configuration_of_a_model_for_another_program_is_found(
    tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    assert find_model(tmp_path, "files")["reason"] == reason
    assert find_model(tmp_path, "folder")["reason"] == "Found"
