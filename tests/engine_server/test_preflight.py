"""Each way a model cannot be served has a reason and a sentence that names the field."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock_engine.config import EngineConfig
from penstock_engine.preflight import preflight


def edit(name: str, **changes: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return apply


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def garble(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def nothing(_: Path) -> None:
    pass


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def broken_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


GPT2 = edit("config.json", architectures=["GPT2LMHeadModel"])
HEADS = edit("config.json", num_key_value_heads=3)
QUANTIZED = edit("config.json", quantization_config={"bits": 4})

CASES: dict[str, tuple[Callable[[Path], None], dict[str, object], str, str]] = {
    "gone": (shutil.rmtree, {}, "ModelNotFound", "spec.model.uri"),
    "no config": (remove("config.json"), {}, "NotAModel", "config.json"),
    "broken config": (broken_json, {}, "BadConfig", "config.json"),
    "other architecture": (GPT2, {}, "UnsupportedArchitecture", "GPT2LMHeadModel"),
    "odd heads": (HEADS, {}, "BadConfig", "num_attention_heads"),
    "quantized": (QUANTIZED, {}, "BadConfig", "quantiz"),
    "pickle only": (pickled, {}, "NoSafetensors", "safetensors"),
    "truncated": (truncate, {}, "BadWeights", "spec.model.uri"),
    "garbled": (garble, {}, "BadWeights", "spec.model.uri"),
    "no tokenizer": (remove("tokenizer.json"), {}, "NoTokenizer", "tokenizer.json"),
    "long context": (
        nothing, {"max_model_len": 100_000}, "ContextTooLong", "spec.engine.maxModelLen",
    ),
    "small KV": (
        nothing, {"kv_cache_memory_bytes": 65536}, "KVCacheTooSmall", "spec.engine.kvCache.memory",
    ),
    "KV beyond memory": (
        nothing, {"kv_cache_memory_bytes": 1 << 34}, "MemoryTooSmall", "spec.resources.memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "flags", "reason", "words"), list(CASES.values()), ids=list(CASES)
)
def test_a_refusal_says_what_to_change(
    model_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], None],
    flags: dict[str, object],
    reason: str,
    words: str,
) -> None:
    monkeypatch.setenv("PENSTOCK_MEMORY_LIMIT_BYTES", str(2 << 30))
    folder = tmp_path / "model"
    shutil.copytree(model_dir, folder)
    spoil(folder)
    verdict = preflight(replace(EngineConfig(model_dir=folder, device="cpu"), **flags))
    assert (verdict["ok"], verdict["reason"]) == (False, reason)
    assert words in verdict["message"]
    assert str(tmp_path) not in verdict["message"]


def test_memory_that_holds_nothing_names_the_amount_that_would(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(model_dir=model_dir, device="cpu")
    monkeypatch.setenv("PENSTOCK_MEMORY_LIMIT_BYTES", str(64 << 20))
    verdict = preflight(config)
    assert verdict["reason"] == "MemoryTooSmall"
    needed_mib = int(verdict["message"].rsplit("at least ", 1)[1].removesuffix("Mi"))
    monkeypatch.setenv("PENSTOCK_MEMORY_LIMIT_BYTES", str(needed_mib << 20))
    assert preflight(config)["ok"] is True
