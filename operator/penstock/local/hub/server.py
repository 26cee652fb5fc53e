"""Serves models of this machine at the routes of the Hugging Face hub that a fetch uses."""

import asyncio
from typing import Any

from aiohttp import web

from penstock.local.hub.repositories import Repositories, Repository, RepositoryFile

MAIN = "main"  # the only branch of each repository
LFS_POINTER_BYTES = 134  # size that a listing needs; clients do not use it


class HubMirror:
    """The handlers of the routes.

    The routes only read, and a file is served by its name in a listing, not by a path that a client sends.
    """

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        # Held while digests are computed: several requests for a large model compute them once.
        self._reading = asyncio.Lock()

    def app(self) -> web.Application:
        """Build the web application."""
        app = web.Application()
        model = "/api/models/{org}/{name}"
        app.router.add_get(model, self._send_info)
        app.router.add_get(model + "/revision/{revision}", self._send_info)
        app.router.add_get("/{org}/{name}/resolve/{revision}/{path:.+}", self._send_file)
        return app

    async def _send_info(self, request: web.Request) -> web.Response:
        """Answer with the commit of a revision, and its files."""
        name, repository = await self._find(request)
        siblings = [_sibling(name, file) for name, file in sorted(repository.files.items())]
        body = {
            "id": name, "modelId": name, "sha": repository.commit, "private": False, "siblings": siblings,
        }  # fmt: skip
        return web.json_response(body)

    async def _send_file(self, request: web.Request) -> web.StreamResponse:
        """Answer with a file, or a range of it."""
        _, repository = await self._find(request)
        file = repository.files.get(request.match_info["path"])
        if file is None:
            raise _not_found("EntryNotFound", "the repository has no such file")
        headers = {
            "X-Repo-Commit": repository.commit,
            "X-Linked-Etag": f'"{file.sha256}"',
            "X-Linked-Size": str(file.size_bytes),
        }
        return web.FileResponse(file.path, headers=headers)

    async def _find(self, request: web.Request) -> tuple[str, Repository]:
        """Return the name and the repository of a request. Raises HTTPNotFound as the hub answers."""
        words = request.match_info
        name, revision = f"{words['org']}/{words['name']}", words.get("revision", MAIN)
        async with self._reading:
            repository = await asyncio.to_thread(self._repositories.read, name)
        root = self._repositories.root
        if repository is None:
            raise _not_found(
                "RepoNotFound",
                "this local cluster cannot reach the Hugging Face hub, only this mirror with the models in "
                f"{root}: put the model into the folder {name} there",
            )
        if revision not in (MAIN, repository.commit):
            raise _not_found(
                "RevisionNotFound",
                "this local cluster cannot reach the Hugging Face hub, only this mirror with one revision of "
                f"each model in {root}: leave the revision out of the URI",
            )
        return name, repository


def _sibling(name: str, file: RepositoryFile) -> dict[str, Any]:
    """A file in a listing. All files have a digest, as the hub lists it for files in Git LFS."""
    lfs = {"sha256": file.sha256, "size": file.size_bytes, "pointerSize": LFS_POINTER_BYTES}
    return {"rfilename": name, "size": file.size_bytes, "lfs": lfs}


def _not_found(code: str, sentence: str) -> web.HTTPNotFound:
    """A 404 in the hub's form. code: for clients. sentence: that clients show to users."""
    answer = web.json_response({"error": sentence})
    return web.HTTPNotFound(
        headers={"X-Error-Code": code}, text=answer.text, content_type="application/json"
    )
