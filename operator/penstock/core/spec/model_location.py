"""Location of a model or adapter, in a claim or on the node, and the check whether it may be on the node."""

from dataclasses import dataclass

from penstock_engine.contract.model_source import is_fetched


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """Location of the folder of a model, or of an adapter.

    claim: PersistentVolumeClaim with the folder; None: it is on the node. path: in the claim, without a slash
    at the start, or on the node.
    """

    claim: str | None
    path: str

    @classmethod
    def parse(cls, uri: str) -> "ModelLocation":
        """Parse pvc://CLAIM/PATH or file:///PATH; another URI names no folder, as its model is fetched."""
        scheme, _, rest = uri.partition("://")
        if scheme != "pvc":
            return cls(None, rest)
        claim, _, path = rest.partition("/")
        return cls(claim, path)

    @property
    def parts(self) -> list[str]:
        """Names of the folders of `path`, without those that are empty or "."."""
        return [part for part in self.path.split("/") if part not in ("", ".")]

    def contains(self, other: "ModelLocation") -> bool:
        """Whether `other` is this folder or in it."""
        parts = self.parts
        return (
            self.claim == other.claim
            and ".." not in other.parts
            and other.parts[: len(parts)] == parts
        )


def host_path_violation(field: str, uri: str, allowed: tuple[str, ...]) -> str | None:
    """A sentence about a folder of the node that may not be mounted; None if it may.

    None also for a folder that is not on the node.

    field: path of the URI in the spec. allowed: folders below which such folders may be; one that is not
    absolute allows nothing.
    """
    location = ModelLocation.parse(uri)
    if is_fetched(uri) or location.claim is not None:
        return None
    folders = [ModelLocation(None, each) for each in allowed if each.startswith("/")]
    if any(folder.contains(location) for folder in folders):
        return None
    return (
        f"{field} names the node's folder {location.path}, which no --allowed-host-path of the operator "
        "(chart value operator.allowedHostPaths) contains: use pvc://CLAIM/PATH, or ask an administrator to "
        "allow it"
    )
