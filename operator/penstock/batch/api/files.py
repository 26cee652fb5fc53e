"""Routes of files."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from aiohttp import web

from penstock.batch.api.caller import tenant_of
from penstock.batch.api.errors import ApiError, not_found
from penstock.batch.api.expiry import lifetime_s
from penstock.batch.api.objects import file_object
from penstock.batch.api.pages import page
from penstock.batch.api.storage_quota import StorageQuota, Upload
from penstock.batch.api.upload_form import UploadForm, read_form
from penstock.batch.settings import BatchSettings
from penstock.batch.store import keys
from penstock.batch.store.catalog import Catalog
from penstock.batch.store.tenant_storage import TenantStorage
from penstock.core.batches.records import StoredFile

# As OpenAI's.
DEFAULT_LIMIT = MAX_LIMIT = 10_000
# Bytes of a file that are in memory while it is sent.
CHUNK_BYTES = 1 << 20


class FileRoutes:
    """The routes below /v1/files. now: Unix time."""

    def __init__(
        self,
        catalog: Catalog,
        storage: TenantStorage,
        settings: BatchSettings,
        now: Callable[[], float],
    ) -> None:
        self._catalog, self._settings, self._now = catalog, settings, now
        self._quota = StorageQuota(catalog, storage, settings)

    def routes(self) -> list[web.RouteDef]:
        """The routes, for an application."""
        return [
            web.post("/v1/files", self._upload),
            web.get("/v1/files", self._list, allow_head=False),
            web.get("/v1/files/{id}", self._get, allow_head=False),
            web.delete("/v1/files/{id}", self._delete),
            web.get("/v1/files/{id}/content", self._content, allow_head=False),
        ]

    async def _upload(self, request: web.Request) -> web.Response:
        tenant, file_id = tenant_of(request), keys.new_file_id()
        content = keys.file_content(tenant, file_id)
        is_stored = False
        with self._quota.upload(tenant) as upload:

            async def store_file(chunks: AsyncIterator[bytes]) -> int:
                nonlocal is_stored
                is_stored = True
                return await self._catalog.store.upload(content, _counted(chunks, upload))

            try:
                form = await read_form(request, store_file)
                file = self._file(tenant, file_id, form)
                await self._catalog.add_file(file)
            except BaseException:
                if is_stored:  # also an empty file, which counts for no bound
                    await self._catalog.store.delete(content)
                raise
        return web.json_response(file_object(file))

    def _file(self, tenant: str, file_id: str, form: UploadForm) -> StoredFile:
        """The record of an uploaded file. Raises ApiError."""
        if form.num_bytes is None:
            raise ApiError(400, "the form must have a file", param="file")
        if form.texts.get("purpose") != "batch":
            message = "purpose must be batch: the gateway stores files of batches only"
            raise ApiError(400, message, param="purpose")
        expires_after = None
        if "expires_after[anchor]" in form.texts or "expires_after[seconds]" in form.texts:
            seconds = form.texts.get("expires_after[seconds]", "")
            expires_after = {
                "anchor": form.texts.get("expires_after[anchor]"),
                "seconds": int(seconds) if seconds.isascii() and seconds.isdigit() else None,
            }
        lasts_s = lifetime_s(expires_after, self._settings.retention_s, "expires_after")
        now_s = int(self._now())
        return StoredFile(
            file_id, tenant, form.file_name, "batch", form.num_bytes, now_s, now_s + lasts_s
        )

    async def _list(self, request: web.Request) -> web.Response:
        files = self._catalog.files(tenant_of(request))
        if (purpose := request.query.get("purpose")) is not None:
            files = [each for each in files if each.purpose == purpose]
        shown = page(
            files, request.query, file_object, default_limit=DEFAULT_LIMIT, max_limit=MAX_LIMIT
        )
        return web.json_response(shown)

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(file_object(self._find(request)))

    async def _delete(self, request: web.Request) -> web.Response:
        file = self._find(request)
        if self._catalog.is_in_use(file):
            message = "a batch that has not ended needs the file: cancel it first"
            raise ApiError(409, message, param="id", code="file_in_use")
        await self._catalog.delete_file(file)
        return web.json_response({"id": file.id, "object": "file", "deleted": True})

    async def _content(self, request: web.Request) -> web.StreamResponse:
        file = self._find(request)
        response = web.StreamResponse()
        response.content_type = "application/jsonl"
        response.content_length = file.num_bytes
        await response.prepare(request)
        async with aclosing(self._catalog.content(file, CHUNK_BYTES)) as chunks:
            async for chunk in chunks:
                await response.write(chunk)
        await response.write_eof()
        return response

    def _find(self, request: web.Request) -> StoredFile:
        """The file that the path names. Raises ApiError."""
        file_id = request.match_info["id"]
        file = self._catalog.file(tenant_of(request), file_id)
        if file is None:
            raise not_found("file", file_id)
        return file


async def _counted(chunks: AsyncIterator[bytes], upload: Upload) -> AsyncIterator[bytes]:
    """Pass on the chunks of a file while there is room for them. Raises ApiError."""
    async for chunk in chunks:
        upload.grow(len(chunk))
        yield chunk
