"""What the demo needs before its story: binaries and two models, fetched or made beside each other."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.clients.clock import monotonic
from penstock.demo.model import MODEL_NAME, ensure_model
from penstock.demo.narrator import Narrator
from penstock.local import chat_model
from penstock.local.binaries import ensure_binaries
from penstock.local.cluster import Cluster

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Models:
    """Folders of the models. chat: None where it could not be fetched."""

    tiny: Path
    chat: Path | None

    def link_into(self, cluster: Cluster) -> Path:
        """A folder of the cluster that holds both models, as hard links, for the claim `models`."""
        folder = cluster.folder / "models"
        for model in filter(None, (self.tiny, self.chat)):
            shutil.copytree(model, folder / model.name, copy_function=os.link)
        return folder


def prepare(root: Path, tell: Narrator) -> Models:
    """Fetch or make everything that is not cached. Raises BuildFailed."""
    with ThreadPoolExecutor() as pool:
        binaries = pool.submit(_timed, lambda: ensure_binaries(tell.say))
        chat = pool.submit(_timed, lambda: _ensure_chat_model(tell))
        tiny = pool.submit(_timed, lambda: ensure_model(root / "docs"))
        _, took_s = binaries.result()
        tell.fact("etcd, Kubernetes and kubectl", _origin(took_s))
        chat_folder, took_s = chat.result()
        if chat_folder is not None:
            tell.fact(chat_model.NAME, _origin(took_s))
        tiny_home, took_s = tiny.result()
        tell.fact(f"{MODEL_NAME}, trained on Penstock's documentation", _origin(took_s))
    return Models(tiny_home / MODEL_NAME, chat_folder)


def _ensure_chat_model(tell: Narrator) -> Path | None:
    """The story goes on without the chat model, so a failure is only told."""
    try:
        return chat_model.ensure_chat_model(tell.say)
    except chat_model.ModelUnavailable as error:
        tell.say(f"{chat_model.NAME} could not be fetched ({error}): {MODEL_NAME} answers instead")
        return None


def _timed(make: Callable[[], T]) -> tuple[T, float]:
    """What `make` returns, and its duration in seconds."""
    started_s = monotonic()
    made = make()
    return made, monotonic() - started_s


def _origin(took_s: float) -> str:
    return f"after {took_s:.0f} s" if took_s > 5 else "found"
