"""Models of the Hugging Face hub, or of a mirror with the same routes."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from penstock_engine.contract.model_source import COMMIT, ModelSource
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.file_names import name_below
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import Digest, Listing, SourceFile
from penstock_engine.sources.protocols.http_client import HttpClient, parse_url
from penstock_engine.sources.protocols.http_errors import status_error, transport_error

DEFAULT_ENDPOINT = "https://huggingface.co"
SECRET = "HF_TOKEN"  # noqa: S105 - the variable's name
MAIN = "main"
MAX_MIRROR_TEXT = 400  # characters of a mirror's own sentence in a message


class Hub:
    """A repository of the hub.

    huggingface_hub, which transformers depends on, resolves revisions. The token is HF_TOKEN or in the file
    HF_TOKEN_PATH; HF_ENDPOINT is the address of a mirror.
    """

    def __init__(self, source: ModelSource, limits: FetchLimits) -> None:
        from huggingface_hub import get_token  # takes half a second

        self._source, self._limits = source, limits
        self._endpoint = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        if not self._endpoint.startswith(("https://", "http://")):
            raise FetchError("BadEndpoint", "HF_ENDPOINT has to start with https:// or http://")
        self._token = get_token()
        self._client = HttpClient(limits, SECRET)

    def resolve(self) -> Listing:
        """List the files of the commit that the revision means now. Raises FetchError."""
        info = self._model_info()
        commit = str(info.sha)
        if not COMMIT.fullmatch(commit):
            raise FetchError(
                "UnexpectedAnswer",
                "the hub does not report the commit of the revision: use a mirror that does",
            )
        files = tuple(
            file for each in info.siblings or [] if (file := self._file(each, commit)) is not None
        )
        resolved = replace(self._source, revision=commit)
        if not files and self._source.path:
            raise FetchError(
                "NotFound",
                f"{self._source.name} has no folder or file {self._source.path[:80]!r}: check the URI",
            )
        return Listing(resolved, files)

    def _model_info(self) -> Any:
        """The commit and its files. Raises FetchError."""
        import httpx2
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        host = parse_url(self._endpoint).host
        api = HfApi(endpoint=self._endpoint, token=self._token or False)
        try:
            return api.model_info(
                self._source.name,
                revision=self._source.revision or MAIN,
                files_metadata=True,
                timeout=self._limits.read_timeout_s,
            )
        except HfHubHTTPError as error:
            raise self._refused(error, host) from error
        except httpx2.HTTPError as error:
            raise transport_error(error, host) from error
        except (ValueError, TypeError, LookupError) as error:
            raise FetchError(
                "UnexpectedAnswer",
                f"{host} does not answer as the hub does: check HF_ENDPOINT",
            ) from error

    def _refused(self, error: Any, host: str) -> FetchError:
        """The error for a repository or revision that the hub refuses."""
        from huggingface_hub.errors import (
            DisabledRepoError,
            GatedRepoError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        name, response = self._source.name, error.response
        sentence = "" if self._endpoint == DEFAULT_ENDPOINT else _sentence_of_mirror(error)
        if isinstance(error, GatedRepoError):
            return FetchError(
                "GatedModel",
                f"{name} is gated: accept its terms on {host}, and set {SECRET} to a token of that account",
            )
        if isinstance(error, RevisionNotFoundError):
            return FetchError(
                "RevisionNotFound",
                f"{name} has no branch, tag or commit {self._source.revision or MAIN!r}: "
                f"{sentence or f'check it on {host}'}",
            )
        if isinstance(error, DisabledRepoError):
            return FetchError("ModelDisabled", f"{host} has disabled {name}: use another model")
        if isinstance(error, RepositoryNotFoundError) and not (
            self._token and response.status_code == 401
        ):
            reason = f": {sentence}; or" if sentence else ", or it is private:"
            return FetchError(
                "RepositoryNotFound",
                f"{host} has no model {name}{reason} check the name, or set {SECRET} to a token that may "
                "read it",
            )
        return status_error(response.status_code, response.headers, host, SECRET)

    def _file(self, sibling: Any, commit: str) -> SourceFile | None:
        """A file of the repository; None: it is not below the path of the URI."""
        path = str(sibling.rfilename)
        name = name_below(path, self._source.path)
        if name is None:
            return None
        if sibling.lfs is not None:
            digest, size_bytes = Digest("sha256", str(sibling.lfs.sha256)), sibling.lfs.size
        else:
            digest, size_bytes = Digest("git-sha1", str(sibling.blob_id)), sibling.size
        if size_bytes is None or not _is_hexadecimal(digest.hex):
            raise FetchError(
                "UnexpectedAnswer",
                f"the mirror reports neither size nor digest of {path[:80]!r}: use one that passes "
                "on blobs=true",
            )
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self._source.name, path, revision=commit, endpoint=self._endpoint)
        return SourceFile(
            name, int(size_bytes), f"{digest.algorithm}/{digest.hex}", digest, location=url
        )

    def read(
        self, file: SourceFile, start: int, end: int
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Open a range of a file. Raises FetchError."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return self._client.range(file, headers, start, end)

    def close(self) -> None:
        """Close the connections, also those of huggingface_hub."""
        from huggingface_hub import close_session

        self._client.close()
        close_session()


def _sentence_of_mirror(error: Any) -> str:
    """The sentence of a mirror about a model that it does not have; empty if it sends none."""
    text = " ".join(str(error.server_message or "").split())
    return text[:MAX_MIRROR_TEXT].rstrip(".") if text.isprintable() else ""


def _is_hexadecimal(text: str) -> bool:
    return bool(text) and all(character in "0123456789abcdef" for character in text)
