"""Paths in an engine's container."""

MODEL_MOUNT = "/models"
DRAFT_MOUNT = "/draft"
CHAT_TEMPLATE_MOUNT = "/chat-template"


def mounted_path(uri: str, mount: str) -> str:
    """Path of a model, for arguments and variables of the container, in which Kubernetes reads $$ as $.

    mount: of the model's volume, which is the claim or the node's folder.
    """
    scheme, _, rest = uri.partition("://")
    path = rest.partition("/")[2] if scheme == "pvc" else ""
    return f"{mount}/{path}".rstrip("/").replace("$", "$$")
