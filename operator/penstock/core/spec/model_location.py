"""Location of a model, in a claim or on the node, and the check whether it may be on the node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """Location of a model's folder.

    claim: PersistentVolumeClaim with the folder; None: it is on the node. path: in the claim, without a slash
    at the start, or on the node.
    """

    claim: str | None
    path: str

    @classmethod
    def parse(cls, uri: str) -> "ModelLocation":
        """Parse pvc://CLAIM/PATH or file:///PATH."""
        scheme, _, rest = uri.partition("://")
        if scheme != "pvc":
            return cls(None, rest)
        claim, _, path = rest.partition("/")
        return cls(claim, path)


def host_path_violation(field: str, uri: str, allowed: tuple[str, ...]) -> str | None:
    """A sentence about a model's folder on the node that may not be mounted; None if it may.

    None also for a model that is not on the node.

    field: path of the URI in the spec. allowed: folders below which models may be; one that is not absolute
    allows nothing.
    """
    location = ModelLocation.parse(uri)
    if location.claim is not None:
        return None
    parts = _parts(location.path)
    folders = [_parts(each) for each in allowed if each.startswith("/")]
    if ".." not in parts and any(parts[: len(each)] == each for each in folders):
        return None
    return (
        f"{field} names the node's folder {location.path}, which no --allowed-host-path of the operator "
        "(chart value operator.allowedHostPaths) contains: use pvc://CLAIM/PATH, or ask an administrator to "
        "allow it"
    )


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
