"""Sources of LoRA adapters: the volumes of engine pods that adapters may be in."""

from penstock.core.spec.model_location import ModelLocation
from penstock.core.spec.service import ServiceSpec
from penstock.core.spec.settings import Settings
from penstock_engine.contract.model_source import is_fetched


def takes_adapters(spec: ServiceSpec) -> bool:
    """Whether engines of the service take adapters."""
    return "engine.lora.maxAdapters" in spec.settings


def reads_adapters(spec: ServiceSpec) -> bool:
    """Whether engines read adapters that were fetched into the service's cache."""
    return takes_adapters(spec) and spec.model_cache_claim is not None


def adapter_sources(spec: ServiceSpec) -> tuple[str, ...]:
    """The URIs of the sources, each a whole claim or a folder of the node; none if engines take no adapters.

    By default the volume of the model. A source within another one is left out.
    """
    if not takes_adapters(spec):
        return ()
    written = spec.settings.get("engine.lora.sources") or _model_source(spec.model_uri)
    locations = {uri: ModelLocation.parse(uri) for uri in sorted(written, key=_depth)}
    outermost: list[str] = []
    for uri, location in locations.items():
        if not any(locations[other].contains(location) for other in outermost):
            outermost.append(uri)
    return tuple(sorted(outermost))


def is_in_sources(uri: str, sources: tuple[str, ...]) -> bool:
    """Whether an adapter's URI lies in one of the sources, which engine pods mount."""
    location = ModelLocation.parse(uri)
    return any(ModelLocation.parse(source).contains(location) for source in sources)


def written_sources(settings: Settings) -> dict[str, str]:
    """URIs of the written sources, by the path of their field in the spec."""
    sources = settings.get("engine.lora.sources", ())
    return {f"spec.engine.lora.sources[{index}]": uri for index, uri in enumerate(sources)}


def _model_source(uri: str) -> tuple[str, ...]:
    """The volume of a model: its whole claim, or its folder on the node.

    Empty if the model is fetched, or if the folder's name has a colon, which no path of a mount may have.
    """
    if is_fetched(uri):
        return ()
    location = ModelLocation.parse(uri)
    if location.claim is not None:
        return (f"pvc://{location.claim}",)
    return () if ":" in location.path else (uri,)


def _depth(uri: str) -> tuple[int, str]:
    return len(ModelLocation.parse(uri).parts), uri
