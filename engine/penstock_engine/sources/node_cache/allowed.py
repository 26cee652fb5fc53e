"""Sources that the cache of a node fetches from, as prefixes of URIs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from penstock_engine.contract.model_source import FETCHED, ModelSource

# Characters that a prefix may have after its scheme: no escapes, revisions, digests or queries.
PREFIX = re.compile(r"[\w./:\[\]-]*", re.ASCII)
# Schemes whose first part is the name of a host, which is the same in upper case.
WITH_HOST = ("oci", "https")
MAX_DECODINGS = 8  # of a path; more escapes within escapes than that name no file


@dataclass(frozen=True, slots=True)
class AllowedPrefix:
    """Allowed sources, as a scheme and their first parts: host or bucket, repository, folders."""

    scheme: str
    parts: tuple[str, ...]

    def covers(self, source: ModelSource) -> bool:
        """Whether a source begins with this prefix, on the boundary of a part."""
        return (
            source.scheme == self.scheme
            and not _leaves_its_folder(source.path)
            and _parts(source)[: len(self.parts)] == self.parts
        )


def parse_allowed(text: str) -> AllowedPrefix:
    """Parse a prefix such as `hf://Qwen`. Raises ValueError with a sentence."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in FETCHED:
        fetched = ", ".join(f"{each}://" for each in FETCHED)
        raise ValueError(f"{text!r} has to start with one of {fetched}")
    parts = rest.rstrip("/").split("/") if rest.rstrip("/") else []
    host = parts[0] if parts and scheme in WITH_HOST else ""
    names = parts[1:] if host else parts
    is_plain = PREFIX.fullmatch(rest) and not any(":" in name or "[" in name for name in names)
    if not is_plain or any(part in ("", ".", "..") for part in parts):
        raise ValueError(
            f"{text!r} has to be the beginning of a URI up to a '/', such as hf://ORG or "
            "https://HOST/FOLDER, without a revision, a digest, a query or %-escapes"
        )
    return AllowedPrefix(scheme, ((host.lower(),) if host else ()) + tuple(names))


def is_allowed(source: ModelSource, prefixes: Sequence[AllowedPrefix]) -> bool:
    """Whether a source begins with one of the prefixes."""
    return any(prefix.covers(source) for prefix in prefixes)


def _parts(source: ModelSource) -> tuple[str, ...]:
    """Host, name and folders of a source, not decoded: a part with %-escapes equals no part of a prefix."""
    host = source.host.lower() if source.scheme in WITH_HOST else source.host
    names = [*source.name.split("/"), *source.path.split("/")]
    return tuple(part for part in (host, *names) if part)


def _leaves_its_folder(path: str) -> bool:
    """Whether a server that decodes a path several times could find '.' or '..' in it."""
    for _ in range(MAX_DECODINGS):
        if any(part in (".", "..") for part in re.split(r"[/\\]", path)):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return True
