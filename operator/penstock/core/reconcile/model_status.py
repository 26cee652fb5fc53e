"""Renders the revisions of a service's models that its pods fetch."""

from penstock.core.manifests.model_fetch import uris_of
from penstock.core.observed.children import ObservedState
from penstock.core.runtimes.pod_models import FETCH_CONTAINERS
from penstock.core.spec.service import DRAFT_MODEL_VOLUME, MODEL_VOLUME, Object
from penstock_engine.contract.model_source import parse_model_source


def model_status(observed: ObservedState, revision: str) -> Object | None:
    """The URIs that pods of a revision fetch; None if none is fetched, or none is resolved yet."""
    known = (entry.pods for entry in observed.history if entry.revision == revision)
    pods = next(known, None)
    uris = {} if pods is None else uris_of(pods.serve)
    resolved = {
        "resolvedURI": _resolved(uris.get(FETCH_CONTAINERS[MODEL_VOLUME])),
        "draftResolvedURI": _resolved(uris.get(FETCH_CONTAINERS[DRAFT_MODEL_VOLUME])),
    }
    return resolved if any(resolved.values()) else None


def _resolved(uri: str | None) -> str | None:
    """The URI if it names the same files at any time; else None."""
    if uri is None:
        return None
    try:
        return uri if parse_model_source(uri).is_resolved else None
    except ValueError:  # recorded by a version with other forms
        return None
