"""A server of the documented routes of the Hugging Face hub, with large files on another host."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.sources.file_server import FileServer

LARGE_BYTES = 1000  # of files that are in Git LFS


@dataclass
class Repository:
    """A repository. commits: files by commit. revisions: commits by branch or tag."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    token: str | None = None  # that may read it; None: anyone
    is_gated: bool = False
    listed_sha256: dict[str, str] = field(default_factory=dict)  # instead of the real ones, by name
    listed_sizes: dict[str, int] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], revision: str = "main") -> str:
        """Add a commit, to which a branch or tag points from now on."""
        content = json.dumps({name: _sha256(data) for name, data in sorted(files.items())})
        commit = hashlib.sha1(content.encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.revisions[revision] = commit
        return commit


class HubServer(FileServer):
    """The hub. cdn: the host that large files are on."""

    def __init__(self) -> None:
        super().__init__()
        self.repositories: dict[str, Repository] = {}
        self.cdn = _Cdn(self)

    def __enter__(self) -> "HubServer":
        super().__enter__()
        self.cdn.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.cdn.__exit__()
        super().__exit__()

    def add(self, name: str, files: dict[str, bytes], **settings: Any) -> Repository:
        """Add a repository with one commit on main."""
        repository = self.repositories[name] = Repository(**settings)
        repository.commit(files)
        return repository

    def answer(self, handler: Any, path: str) -> None:
        parts = [unquote(part) for part in urlsplit(path).path.split("/")[1:]]
        is_api = parts[:2] == ["api", "models"]
        owner, name, kind, revision, *rest = [*(parts[2:] if is_api else parts), "", "", "", ""]
        repository = self.repositories.get(f"{owner}/{name}")
        if not self._may_read(handler, repository):
            return
        assert repository is not None
        commit = repository.revisions.get(revision or "main", revision)
        if commit not in repository.commits:
            handler.send_status(404, {"X-Error-Code": "RevisionNotFound"})
        elif is_api and kind in ("revision", ""):
            self._send_info(handler, f"{owner}/{name}", repository, commit)
        elif kind == "resolve":
            self._resolve(handler, repository, commit, "/".join(part for part in rest if part))
        else:
            handler.send_status(404)

    def _may_read(self, handler: Any, repository: Repository | None) -> bool:
        """Whether a request may go on; if not, it is answered as the hub does."""
        authorization = handler.headers.get("Authorization", "")
        if authorization == "Bearer hf_wrong":
            message = "Invalid credentials in Authorization header"
            handler.send_status(401, {"X-Error-Message": message})
        elif repository is None or (
            repository.token
            and not repository.is_gated
            and authorization != f"Bearer {repository.token}"
        ):
            status = 404 if authorization else 401
            handler.send_status(status, {"X-Error-Code": "RepoNotFound"})
        elif repository.is_gated and authorization != f"Bearer {repository.token}":
            handler.send_status(403, {"X-Error-Code": "GatedRepo"})
        else:
            return True
        return False

    def _send_info(self, handler: Any, name: str, repository: Repository, commit: str) -> None:
        siblings = []
        for path, data in repository.commits[commit].items():
            size = repository.listed_sizes.get(path, len(data))
            sibling: dict[str, Any] = {"rfilename": path, "size": size, "blobId": _git_sha1(data)}
            if len(data) >= LARGE_BYTES:
                sha256 = repository.listed_sha256.get(path, _sha256(data))
                sibling["lfs"] = {"sha256": sha256, "size": size, "pointerSize": 134}
            siblings.append(sibling)
        body = {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "private": False}
        handler.send_file(json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _resolve(self, handler: Any, repository: Repository, commit: str, path: str) -> None:
        data = repository.commits[commit].get(path)
        if data is None:
            handler.send_status(404, {"X-Error-Code": "EntryNotFound"})
        elif len(data) < LARGE_BYTES:
            handler.send_file(data, {"ETag": f'"{_git_sha1(data)}"', "X-Repo-Commit": commit})
        else:
            sha256 = _sha256(data)
            self.cdn.objects[sha256] = data
            headers = {
                "Location": f"{self.cdn.url}/{sha256}?signature=secret",
                "X-Linked-Etag": f'"{sha256}"',
                "X-Linked-Size": str(len(data)),
                "X-Repo-Commit": commit,
            }
            handler.send_status(302, headers)


class _Cdn(FileServer):
    """The host of large files: another name of the loopback address, so another host to clients."""

    def __init__(self, hub: HubServer) -> None:
        super().__init__(host="localhost")
        self.faults, self.stopped = hub.faults, hub.stopped
        self.objects: dict[str, bytes] = {}
        self.fail_after: int | None = None  # files and parts that it still sends

    def answer(self, handler: Any, path: str) -> None:
        if self.fail_after is not None:
            if self.fail_after == 0:
                handler.send_status(500)
                return
            self.fail_after -= 1
        data = self.objects.get(urlsplit(path).path[1:])
        if data is None or handler.headers.get("Authorization"):
            handler.send_status(400)  # as stores do that get two credentials
        else:
            handler.send_file(data, {"ETag": '"of the cdn"'})


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
