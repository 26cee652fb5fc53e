"""The token that gateways and the batch server share, in the pods of both."""

from penstock.chart.names import BATCH_TOKEN_FOLDER, BATCH_TOKEN_VOLUME
from penstock.chart.tree import If, Required
from penstock.core.spec.service import Object

# Key of the Secret, and its file in the containers.
KEY = "token"
FILE = f"{BATCH_TOKEN_FOLDER}/{KEY}"
NAME_MISSING = (
    "batch.tokenSecretName must name a Secret with the key token, of 32 bytes or more, with batch.enabled: "
    "gateways and the batch server prove themselves to each other by it"
)


def volume() -> If:
    """The volume, if the batch server is enabled."""
    items = [{"key": KEY, "path": KEY}]
    secret: Object = {
        "secretName": Required("batch.tokenSecretName", NAME_MISSING),
        "items": items,
    }
    return If("batch.enabled", {"name": BATCH_TOKEN_VOLUME, "secret": secret})


def mount() -> If:
    """Its mount in the container. It has no subPath, as the kubelet does not renew the files of those."""
    made = {"name": BATCH_TOKEN_VOLUME, "mountPath": BATCH_TOKEN_FOLDER, "readOnly": True}
    return If("batch.enabled", made)
