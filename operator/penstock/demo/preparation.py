"""Prepares the demo: downloads or builds binaries and two models, concurrently, and makes LoRA adapters."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.clients.machine.clock import monotonic
from penstock.demo.model import MODEL_NAME, ensure_adapters, ensure_model
from penstock.demo.narrator import Narrator
from penstock.local import chat_model
from penstock.local.binaries import ensure_binaries
from penstock.local.cluster import Cluster

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Models:
    """Folders of the models. adapters: of tiny. chat: None if it could not be downloaded.

    Pods fetch the chat model from where the cluster has models of hf://, and find the others in a claim.
    """

    tiny: Path
    adapters: Path
    chat: Path | None

    def link_into(self, cluster: Cluster) -> Path:
        """Hard-link the models into a folder of the cluster, and return the folder."""
        folder = cluster.folder / "models"
        for model in (self.tiny, self.adapters):
            shutil.copytree(model, folder / model.name, copy_function=os.link)
        return folder


def prepare(root: Path, tell: Narrator) -> Models:
    """Download, build or train everything that is not cached. Raises BuildFailed."""
    with ThreadPoolExecutor() as pool:
        binaries = pool.submit(_timed, lambda: ensure_binaries(tell.say))
        chat = pool.submit(_timed, lambda: _ensure_chat_model(tell))
        tiny = pool.submit(_timed, lambda: _ensure_tiny_model(root / "docs"))
        _, took_s = binaries.result()
        tell.fact("etcd, Kubernetes and kubectl", _origin(took_s))
        chat_folder, took_s = chat.result()
        if chat_folder is not None:
            tell.fact(chat_model.NAME, _origin(took_s))
        (tiny_folder, adapters), took_s = tiny.result()
        tell.fact(f"{MODEL_NAME}, trained on Penstock's documentation", _origin(took_s))
    return Models(tiny_folder, adapters, chat_folder)


def _ensure_tiny_model(docs: Path) -> tuple[Path, Path]:
    """Make the model and its adapters. Returns their folders."""
    home = ensure_model(docs)
    return home / MODEL_NAME, ensure_adapters(home)


def _ensure_chat_model(tell: Narrator) -> Path | None:
    """Download the chat model. A failure is only printed, as the demo works without it."""
    try:
        return chat_model.ensure_chat_model(tell.say)
    except chat_model.ModelUnavailable as error:
        tell.say(f"{chat_model.NAME} could not be fetched ({error}): {MODEL_NAME} answers instead")
        return None


def _timed(make: Callable[[], T]) -> tuple[T, float]:
    """Call `make`; returns its result and its duration in seconds."""
    started_s = monotonic()
    made = make()
    return made, monotonic() - started_s


def _origin(took_s: float) -> str:
    return f"after {took_s:.0f} s" if took_s > 5 else "found"
