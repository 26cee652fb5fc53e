"""Opens the source that a URI names."""

from penstock_engine.contract.model_source import ModelSource
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.protocols.hub import Hub
from penstock_engine.sources.protocols.object_store import ObjectStore
from penstock_engine.sources.protocols.registry import Registry
from penstock_engine.sources.protocols.source import Source
from penstock_engine.sources.protocols.web import Web


def open_source(source: ModelSource, limits: FetchLimits) -> Source:
    """The source of a URI. Raises FetchError for one that is not fetched."""
    match source.scheme:
        case "hf":
            return Hub(source, limits)
        case "s3" | "gs" | "az":
            return ObjectStore(source, limits)
        case "oci":
            return Registry(source, limits)
        case "https":
            return Web(source, limits)
        case _:
            raise FetchError(
                "NotFetchable",
                f"{source.scheme}:// is not fetched: mount it, and give the path to `serve`",
            )
