"""Bounds on the files of each tenant and their bytes, with those of uploads that are not complete."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.batch.api.errors import ApiError
from penstock.batch.settings import BatchSettings
from penstock.batch.store.catalog import Catalog
from penstock.batch.store.tenant_storage import TenantStorage
from penstock.core.batches.results import STORAGE_FULL

# Uploads of one tenant, and of all, at a time. Each has some hundred kilobytes of memory.
MAX_TENANT_UPLOADS, MAX_UPLOADS = 4, 32


class Upload:
    """The room that an upload takes while it arrives. num_bytes: so far."""

    def __init__(self, quota: "StorageQuota", tenant: str) -> None:
        self._quota, self._tenant = quota, tenant
        self.num_bytes = 0

    def grow(self, num_bytes: int) -> None:
        """Take room for more bytes. Raises ApiError."""
        self.num_bytes += num_bytes
        self._quota.take(self._tenant, num_bytes, self.num_bytes)


class StorageQuota:
    """The bounds of all tenants. Results of batches count too."""

    def __init__(self, catalog: Catalog, storage: TenantStorage, settings: BatchSettings) -> None:
        self._catalog, self._storage, self._settings = catalog, storage, settings
        self._num_uploads: Counter[str] = Counter()
        self._uploaded_bytes: Counter[str] = Counter()

    @contextmanager
    def upload(self, tenant: str) -> Iterator[Upload]:
        """Hold room for an upload while the block runs. Raises ApiError."""
        settings, running = self._settings, self._num_uploads
        if running[tenant] >= MAX_TENANT_UPLOADS or running.total() >= MAX_UPLOADS:
            raise ApiError(429, "too many uploads run at a time: try again later")
        if len(self._catalog.files(tenant)) + running[tenant] >= settings.max_tenant_files:
            message = f"there are {settings.max_tenant_files} files already: delete some of them"
            raise ApiError(400, message, code="too_many_files")
        upload = Upload(self, tenant)
        running[tenant] += 1
        try:
            yield upload
        finally:
            self._uploaded_bytes[tenant] -= upload.num_bytes
            running[tenant] -= 1
            if not running[tenant]:
                del running[tenant], self._uploaded_bytes[tenant]

    def take(self, tenant: str, num_bytes: int, file_bytes: int) -> None:
        """Count bytes that have arrived. file_bytes: of their file so far. Raises ApiError."""
        self._uploaded_bytes[tenant] += num_bytes
        if file_bytes > self._settings.max_file_bytes:
            message = f"a file may have {self._settings.max_file_bytes} bytes: split it"
            raise ApiError(413, message, param="file", code="file_too_large")
        if not self._storage.has_room(tenant, self._uploaded_bytes[tenant]):
            raise storage_full(self._storage)


def storage_full(storage: TenantStorage) -> ApiError:
    """The error for a tenant that may store no more."""
    return ApiError(413, storage.message, code=STORAGE_FULL)
