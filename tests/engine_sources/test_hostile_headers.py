"""Sources whose headers would need more memory than a preflight's container has: each is a refusal."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine_sources.test_headers import NAME, files_of
from tests.support.engine.gguf_headers import gguf_array
from tests.support.sources.hub_server import HubServer

from penstock.core.formats.quantity import parse_quantity
from penstock.core.manifests.engine_pod import PREFLIGHT_RESOURCES

ENGINE = Path(sys.executable).parent / "penstock-engine"
LIMIT_BYTES = int(parse_quantity(PREFLIGHT_RESOURCES["limits"]["memory"]))
LISTS = ",".join(["[" * 400 + "]" * 400] * 30_000)  # 24 MB, and 1.2 GB once they are parsed

OBJECTS = ",".join(['{"":0}'] * 1_000_000)  # 7 MB, and 1.1 GB once the tokenizers library has them


def safetensors_with(header: str) -> bytes:
    return struct.pack("<Q", len(header)) + header.encode()


def preflight(hub: HubServer, folder: Path) -> dict[str, Any]:
    """Verdict of a preflight that gets no more memory than its container has."""
    words = [ENGINE, "preflight", folder, f"--headers={folder}=hf://{NAME}"]
    done = subprocess.run(
        ["bash", "-c", f'ulimit -d {LIMIT_BYTES >> 10}; exec "$@"', "-", *words],
        env={**os.environ, "HF_ENDPOINT": hub.url, "PENSTOCK_MEMORY_LIMIT_BYTES": str(4 << 30)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


HOSTILE: dict[str, tuple[dict[str, bytes], str, str]] = {
    "header of safetensors": (
        {"model.safetensors": safetensors_with(f'{{"__metadata__":[{LISTS}]}}')},
        "HeaderTooLarge", "the header of model.safetensors needs up to",
    ),
    "index": (
        {
            "model-00001-of-00001.safetensors": safetensors_with("{}"),
            "model.safetensors.index.json": f'{{"weight_map":{{}},"x":[{LISTS}]}}'.encode(),
        },
        "BadIndex", "model.safetensors.index.json needs up to",
    ),
    "config": (
        {"config.json": f'{{"x":[{LISTS}]}}'.encode()}, "BadConfig", "config.json needs up to"
    ),
    "settings of the tokenizer": (
        {"tokenizer_config.json": f'{{"x":[{LISTS}]}}'.encode()},
        "BadTokenizer", "tokenizer_config.json needs up to",
    ),
    "tokenizer": (
        {"tokenizer.json": f'{{"model":{{"type":"BPE","vocab":{{}},"merges":[],"x":[{OBJECTS}]}}}}'.encode()},
        "BadTokenizer", "tokenizer.json needs more than",
    ),
    "GGUF": (
        {"model.gguf": gguf_array(8, 8_000_000, bytes(8) * 8_000_000)},
        "BadWeights", "the header of model.gguf needs more than",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "reason", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_a_preflight_stays_within_its_memory(
    hub: HubServer,
    tiny_dir: Path,
    tmp_path: Path,
    files: dict[str, bytes],
    reason: str,
    sentence: str,
) -> None:
    model = files_of(tiny_dir)
    if any(name.endswith((".gguf", "-of-00001.safetensors")) for name in files):
        del model["model.safetensors"]
    hub.add(NAME, model | files)
    verdict = preflight(hub, tmp_path / "m")
    assert (verdict["ok"], verdict["reason"]) == (False, reason)
    assert verdict["message"].startswith(sentence)
