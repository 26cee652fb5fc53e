"""Paths in an engine's container."""

from penstock.core.spec.model_location import ModelLocation
from penstock_engine.contract.model_source import is_fetched, parse_model_source
from penstock_engine.contract.node_cache import SOCKET_NAME

MODEL_MOUNT = "/models"
DRAFT_MOUNT = "/draft"
CHAT_TEMPLATE_MOUNT = "/chat-template"
ADAPTERS_MOUNT = "/adapters"
# Mounts of containers that fetch models. The cache is at the same path in the engine, as links lead there.
MODEL_CACHE_MOUNT = "/model-cache"
# Socket of the server that writes the cache of a node.
NODE_CACHE_SOCKET = f"{MODEL_CACHE_MOUNT}/{SOCKET_NAME}"
# The same cache where adapters are fetched and loaded: Penstock's engine loads none outside ADAPTERS_MOUNT.
ADAPTER_CACHE_MOUNT = f"{ADAPTERS_MOUNT}/cache"
# Its folder with the adapters that were fetched, each in NAME/REVISION.
FETCHED_ADAPTERS = f"{ADAPTER_CACHE_MOUNT}/adapters"
MODEL_SECRET_MOUNT = "/model-secret"  # noqa: S105 - a path


def mounted_path(uri: str, mount: str) -> str:
    """Path of a model in the container. mount: path of its volume.

    The volume is the claim, the node's folder, or the one that the model is fetched into. $ is written as $$,
    because Kubernetes expands $(NAME) in arguments and variables.
    """
    location = ModelLocation.parse(uri)
    path = "" if location.claim is None else location.path
    if is_fetched(uri):
        # Runtimes take a GGUF file by its own path, which is below the mount under its own name.
        name = parse_model_source(uri).last_name
        path = name if name.endswith(".gguf") else ""
    return f"{mount}/{path}".rstrip("/").replace("$", "$$")


def mounted_adapter_path(uri: str) -> str:
    """Path of an adapter at pvc://CLAIM/PATH or file:///PATH.

    It depends on the URI alone, so that pods of all revisions have an adapter at the same path.
    """
    location = ModelLocation.parse(uri)
    start = ("file",) if location.claim is None else ("pvc", location.claim)
    return "/".join((ADAPTERS_MOUNT, *start, *location.parts))
