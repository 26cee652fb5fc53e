"""Paths in an engine's container."""

from penstock.core.spec.model_location import ModelLocation

MODEL_MOUNT = "/models"
DRAFT_MOUNT = "/draft"
CHAT_TEMPLATE_MOUNT = "/chat-template"
ADAPTERS_MOUNT = "/adapters"


def mounted_path(uri: str, mount: str) -> str:
    """Path of a model in the container. mount: path of its volume, which is the claim or the node's folder.

    $ is written as $$, because Kubernetes expands $(NAME) in arguments and variables.
    """
    location = ModelLocation.parse(uri)
    path = "" if location.claim is None else location.path
    return f"{mount}/{path}".rstrip("/").replace("$", "$$")


def mounted_adapter_path(uri: str) -> str:
    """Path of an adapter at pvc://CLAIM/PATH or file:///PATH.

    It depends on the URI alone, so that pods of all revisions have an adapter at the same path.
    """
    location = ModelLocation.parse(uri)
    start = ("file",) if location.claim is None else ("pvc", location.claim)
    return "/".join((ADAPTERS_MOUNT, *start, *location.parts))
