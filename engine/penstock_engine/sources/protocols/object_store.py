"""Models of object stores: S3 and stores like it, Google Cloud Storage, Azure Blob Storage."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from penstock_engine.contract.model_source import ModelSource
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.file_names import name_below
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import Listing, SourceFile
from penstock_engine.sources.protocols.aws_credentials import file_credentials
from penstock_engine.sources.protocols.http_errors import source_changed
from penstock_engine.sources.protocols.object_errors import object_error
from penstock_engine.sources.selection import select

SECRETS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}
CHUNK_BYTES = 1 << 20  # least size of a chunk, as each costs a call of Python


class ObjectStore:
    """Objects below a path of a bucket.

    obstore speaks the protocols of all three, without dependencies. It reads the usual variables of each for
    credentials, endpoint and region, and workload identities.
    """

    def __init__(self, source: ModelSource, limits: FetchLimits) -> None:
        self._source, self._limits = source, limits
        self._endpoint = os.environ.get(ENDPOINTS[source.scheme], "")
        self._store = self._open()

    def _open(self) -> Any:
        """The library's store. Raises FetchError."""
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store

        options: Any = {
            "connect_timeout": timedelta(seconds=self._limits.connect_timeout_s),
            "read_timeout": timedelta(seconds=self._limits.read_timeout_s),
            # For a whole request: the rate is checked chunk by chunk.
            "timeout": timedelta(seconds=self._limits.deadline_s),
            "allow_http": self._endpoint.startswith("http://"),
        }
        # The fetch itself retries, within its deadline.
        settings: Any = {"client_options": options, "retry_config": {"max_retries": 0}}
        try:
            if not re.fullmatch(r"(https?://[^\s/]+.*)?", self._endpoint):
                raise ValueError("the endpoint is no URL")  # the library would panic
            match self._source.scheme:
                case "gs":
                    return GCSStore(self._source.host, **settings)
                case "az":
                    return AzureStore(self._source.host, **settings)
                case _:
                    keys: Any = file_credentials()
                    return S3Store(self._source.host, **keys, **settings)
        except (BaseError, ValueError, OSError) as error:
            raise FetchError(
                "BadStoreSettings",
                f"the settings of the store are wrong or missing: check {SECRETS[self._source.scheme]}, and "
                f"{ENDPOINTS[self._source.scheme]}",
            ) from error

    def resolve(self) -> Listing:
        """List the objects with their versions. The digest of this list is that of the revision.

        Raises FetchError.
        """
        objects = self._list()
        if not objects and self._source.path:
            raise FetchError(
                "NotFound",
                f"{self._source.host} has nothing below {self._source.path[:80]!r}: check the URI",
            )
        files = select([self._file(each) for each in objects], self._limits)
        lines = [f"{file.name}\0{file.size_bytes}\0{file.blob}\n" for file in files]
        digest = f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"
        return Listing(replace(self._source, digest=digest), files)

    def _list(self) -> list[Any]:
        """Objects below the path, or the one object that it names; one more than the limit at most."""
        import obstore

        path, objects = self._source.path, []
        try:
            if path.endswith(".gguf"):
                return [obstore.head(self._store, path)]
            for page in obstore.list(self._store, path or None):
                objects += [each for each in page if not each["path"].endswith("/")]
                if len(objects) > self._limits.max_files:
                    break
        except Exception as error:
            raise self._error(error) from error
        return objects

    def _file(self, entry: Any) -> SourceFile:
        key, etag, version = str(entry["path"]), entry["e_tag"], entry["version"]
        name = name_below(key, self._source.path) or key
        stamp = version or etag or entry["last_modified"].isoformat()
        identity = "\0".join(
            (self._source.scheme, self._endpoint, self._source.host, key, stamp, str(entry["size"]))
        )
        blob = f"version/{hashlib.sha256(identity.encode()).hexdigest()}"
        return SourceFile(name, int(entry["size"]), blob, None, location=key, version=etag)

    @contextmanager
    def read(self, file: SourceFile, start: int, end: int) -> Iterator[Iterator[memoryview]]:
        """Open a range of an object, as long as it has the version that was listed. Raises FetchError."""
        import obstore

        options: Any = {"range": (start, end)}
        if file.version is not None:
            options["if_match"] = file.version
        try:
            result = obstore.get(self._store, file.location, options=options)
        except Exception as error:
            raise self._error(error) from error
        # Some stores ignore If-Match, and send the new version.
        if result.meta["size"] != file.size_bytes or not _is_same(
            file.version, result.meta["e_tag"]
        ):
            raise source_changed()
        yield self._chunks(result)

    def _chunks(self, result: Any) -> Iterator[memoryview]:
        """The bytes of an answer. Raises FetchError."""
        try:
            for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
                yield memoryview(chunk)
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> FetchError:
        return object_error(error, self._source.host, SECRETS[self._source.scheme])

    def close(self) -> None:
        """Do nothing: the library closes idle connections."""


def _is_same(listed: str | None, read: str | None) -> bool:
    """Whether two etags may be of one version. Lists of Azure have them without quotes."""
    return None in (listed, read) or str(listed).strip('"') == str(read).strip('"')
