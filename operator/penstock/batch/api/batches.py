"""Routes of batches."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from penstock.batch.api.caller import tenant_of
from penstock.batch.api.errors import ApiError, not_found
from penstock.batch.api.expiry import lifetime_s
from penstock.batch.api.objects import batch_object
from penstock.batch.api.pages import page
from penstock.batch.api.storage_quota import storage_full
from penstock.batch.running.runner import BatchRunner
from penstock.batch.settings import BatchSettings
from penstock.batch.store import keys
from penstock.batch.store.catalog import Catalog
from penstock.batch.store.tenant_storage import TenantStorage
from penstock.core.batches.input_line import ENDPOINTS
from penstock.core.batches.records import COMPLETION_WINDOW, COMPLETION_WINDOW_S, Batch
from penstock.core.formats.json_text import parse_json

# As OpenAI's.
DEFAULT_LIMIT, MAX_LIMIT = 20, 100
MAX_PAIRS, MAX_KEY_CHARACTERS, MAX_VALUE_CHARACTERS = 16, 64, 512
# Bound on the body of a request: 16 pairs of metadata are 40 KB at most.
MAX_BODY_BYTES = 64 << 10


class BatchRoutes:
    """The routes below /v1/batches. now: Unix time."""

    def __init__(
        self,
        catalog: Catalog,
        storage: TenantStorage,
        runner: BatchRunner,
        settings: BatchSettings,
        now: Callable[[], float],
    ) -> None:
        self._catalog, self._storage, self._runner = catalog, storage, runner
        self._settings, self._now = settings, now
        self._creating = asyncio.Lock()  # so that bounds hold for concurrent requests

    def routes(self) -> list[web.RouteDef]:
        """The routes, for an application."""
        return [
            web.post("/v1/batches", self._create),
            web.get("/v1/batches", self._list, allow_head=False),
            web.get("/v1/batches/{id}", self._get, allow_head=False),
            web.post("/v1/batches/{id}/cancel", self._cancel),
        ]

    async def _create(self, request: web.Request) -> web.Response:
        tenant, fields = tenant_of(request), await _fields(request)
        async with self._creating:
            self._check_room(tenant)
            batch = self._batch(tenant, fields)
            await self._catalog.save_batch(batch)
        self._runner.start(batch)
        return web.json_response(batch_object(batch))

    def _check_room(self, tenant: str) -> None:
        batches, settings = self._catalog.batches(tenant), self._settings
        if sum(not each.is_finished for each in batches) >= settings.max_running_batches:
            message = (
                f"{settings.max_running_batches} batches are running: wait until one has ended"
            )
            raise ApiError(429, message, code="too_many_batches")
        if not self._storage.has_room(tenant):
            raise storage_full(self._storage)
        if len(batches) >= settings.max_tenant_batches:
            message = (
                f"there are {settings.max_tenant_batches} batches already: they are deleted "
                f"{settings.retention_s // 86400} days after their creation"
            )
            raise ApiError(429, message, code="too_many_batches")

    def _batch(self, tenant: str, fields: Mapping[str, Any]) -> Batch:
        """A new batch, as a request asks for it. Raises ApiError."""
        endpoint = fields.get("endpoint")
        if endpoint not in ENDPOINTS:
            message = f"endpoint must be one of {', '.join(ENDPOINTS)}"
            raise ApiError(400, message, param="endpoint")
        if fields.get("completion_window") != COMPLETION_WINDOW:
            message = f"completion_window must be {COMPLETION_WINDOW}"
            raise ApiError(400, message, param="completion_window")
        file_id = fields.get("input_file_id")
        file = self._catalog.file(tenant, file_id) if isinstance(file_id, str) else None
        if file is None or file.purpose != "batch":
            message = "input_file_id must be the id of a file that was uploaded with purpose batch"
            raise ApiError(400, message, param="input_file_id", code="invalid_input_file")
        now_s = int(self._now())
        return Batch(
            id=keys.new_batch_id(),
            tenant=tenant,
            endpoint=endpoint,
            input_file=file.id,
            output_file=keys.new_file_id(),
            error_file=keys.new_file_id(),
            created_s=now_s,
            expires_s=now_s + COMPLETION_WINDOW_S,
            metadata=_metadata(fields.get("metadata")),
            results_retention_s=lifetime_s(
                fields.get("output_expires_after"),
                self._settings.retention_s,
                "output_expires_after",
            ),
        )

    async def _list(self, request: web.Request) -> web.Response:
        shown = page(
            self._catalog.batches(tenant_of(request)),
            request.query,
            lambda batch: batch_object(self._runner.present(batch)),
            default_limit=DEFAULT_LIMIT,
            max_limit=MAX_LIMIT,
        )
        return web.json_response(shown)

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(batch_object(self._runner.present(self._find(request))))

    async def _cancel(self, request: web.Request) -> web.Response:
        batch = self._find(request)
        if batch.may_be_cancelled:
            batch = await self._runner.cancel(batch)
        elif batch.status not in ("cancelling", "cancelled"):
            message = f"a batch with the status {batch.status} cannot be cancelled"
            raise ApiError(409, message, param="id")
        return web.json_response(batch_object(self._runner.present(batch)))

    def _find(self, request: web.Request) -> Batch:
        """The batch that the path names. Raises ApiError."""
        batch_id = request.match_info["id"]
        batch = self._catalog.batch(tenant_of(request), batch_id)
        if batch is None:
            raise not_found("batch", batch_id)
        return batch


async def _fields(request: web.Request) -> Mapping[str, Any]:
    """The fields of a request's body. Raises ApiError."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(413, f"the body may have {MAX_BODY_BYTES} bytes")
    try:
        fields = parse_json(bytes(body))
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ApiError(400, "the body must be a JSON object")
    return fields


def _metadata(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    is_good = (
        isinstance(value, dict)
        and len(value) <= MAX_PAIRS
        and all(
            isinstance(text, str)
            and len(key) <= MAX_KEY_CHARACTERS
            and len(text) <= MAX_VALUE_CHARACTERS
            for key, text in value.items()
        )
    )
    if not is_good:
        message = (
            f"metadata may have {MAX_PAIRS} pairs, with texts of {MAX_KEY_CHARACTERS} characters as keys "
            f"and of {MAX_VALUE_CHARACTERS} as values"
        )
        raise ApiError(400, message, param="metadata")
    return value  # type: ignore[no-any-return]
