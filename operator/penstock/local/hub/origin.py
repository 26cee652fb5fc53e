"""Says to a user of a local cluster where its pods find models of hf://."""

from pathlib import Path

from penstock.local import chat_model
from penstock.local.record import Cluster


def origin_of_models(cluster: Cluster, chat: Path | None) -> str:
    """Return a sentence about models of hf://. chat: folder of the chat model; None: there is none."""
    if not cluster.has_hub_mirror:
        return "pods fetch models of hf:// from the Hugging Face hub"
    failure = "pods cannot reach the Hugging Face hub"
    uri = f"hf://{chat_model.REPOSITORY}"
    if chat is None:
        return f"{failure}: models of hf:// are those in {chat_model.models_folder()}"
    if chat_model.comes_from_package(chat):
        package = chat_model.PACKAGE.partition("==")[0]
        return f"{failure}: {uri} is served from the Python package {package}, quantized to 4 bits"
    return f"{failure}: {uri} is served from {chat}"
