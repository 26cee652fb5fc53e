"""Counts the storage of each tenant: files, and results of batches that are not in files yet."""

from collections import defaultdict

from penstock.batch.store.catalog import Catalog
from penstock.batch.store.journal import Journal
from penstock.core.batches.records import Batch


class TenantStorage:
    """The bytes of each tenant, of whom one with more than max_tenant_bytes stores no more.

    Journals count until their batch has ended; what is in its files already counts once.
    """

    def __init__(self, catalog: Catalog, max_tenant_bytes: int) -> None:
        self._catalog, self._max_tenant_bytes = catalog, max_tenant_bytes
        self._journals: defaultdict[str, dict[str, tuple[Batch, Journal]]] = defaultdict(dict)

    @property
    def message(self) -> str:
        """The error of a tenant whose storage is full."""
        return (
            f"all files and results together may have {self._max_tenant_bytes} bytes: delete some"
        )

    def has_room(self, tenant: str, num_bytes: int = 0) -> bool:
        """Whether a tenant is within the bound, with so many bytes more."""
        return self.stored_bytes(tenant) + num_bytes <= self._max_tenant_bytes

    def stored_bytes(self, tenant: str) -> int:
        """Bytes of the files and results of a tenant."""
        results = 0
        if tenant in self._journals:
            results = sum(self._unwritten_bytes(*each) for each in self._journals[tenant].values())
        return self._catalog.stored_bytes(tenant) + results

    def add_journal(self, batch: Batch, journal: Journal) -> None:
        """Count the results of a batch, in place of an earlier journal of it."""
        self._journals[batch.tenant][batch.id] = batch, journal

    def remove_journal(self, batch: Batch) -> None:
        """Count the results of a batch that has ended no more: they are in its files."""
        journals = self._journals[batch.tenant]
        journals.pop(batch.id, None)
        if not journals:
            del self._journals[batch.tenant]

    def _unwritten_bytes(self, batch: Batch, journal: Journal) -> int:
        """Bytes of results that are in no file yet."""
        files = (
            self._catalog.file(batch.tenant, each) for each in (batch.output_file, batch.error_file)
        )
        return max(0, journal.num_bytes - sum(each.num_bytes for each in files if each is not None))
