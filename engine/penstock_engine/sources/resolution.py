"""Checks of a URI, before and after its source has resolved it."""

import os

from penstock_engine.contract.model_source import ModelSource, parse_model_source
from penstock_engine.sources.errors import FetchError


def parse_source(uri: str) -> ModelSource:
    """The source that a URI names. Raises FetchError (BadSource)."""
    try:
        return parse_model_source(uri)
    except ValueError as error:
        raise FetchError("BadSource", str(error)) from error


def check_pin(source: ModelSource, resolved: ModelSource) -> None:
    """Raise FetchError (DigestMismatch) if a source is no longer what the digest in its URI says."""
    if source.digest not in (None, resolved.digest):
        raise FetchError(
            "DigestMismatch",
            "the source is no longer what the digest in the URI says: take the new digest, or "
            "restore the files",
        )


def is_offline() -> bool:
    """Whether no source may be asked, as HF_HUB_OFFLINE says."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
