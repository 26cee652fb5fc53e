"""Records of a batch and of a stored file, and the states that a batch goes through.

validating -> in_progress -> finalizing -> completed | expired | failed
    |    \\________  |
  failed          cancelling -> cancelled
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

BatchStatus = Literal[
    "validating",
    "in_progress",
    "finalizing",
    "cancelling",
    "completed",
    "failed",
    "expired",
    "cancelled",
]
# States in which lines run or results are written.
UNFINISHED: frozenset[BatchStatus] = frozenset(
    {"validating", "in_progress", "finalizing", "cancelling"}
)
FilePurpose = Literal["batch", "batch_output"]

# The only completion window, as in OpenAI's API.
COMPLETION_WINDOW = "24h"
COMPLETION_WINDOW_S = 24 * 3600
# Largest file of a batch, as in OpenAI's API. Gateways relay no larger one.
MAX_FILE_BYTES = 200 << 20


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a tenant. Times are Unix times."""

    id: str
    tenant: str  # empty if the cluster has no Tenant
    name: str  # as the client called it
    purpose: FilePurpose
    num_bytes: int
    created_s: int
    expires_s: int


@dataclass(frozen=True, slots=True)
class BatchError:
    """A reason for which a batch fails. line: number of the line from 1; None: it is about no single one."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of a tenant. Times are Unix times; None: the state was not reached."""

    id: str
    tenant: str  # empty if the cluster has no Tenant
    endpoint: str  # path of the API that all lines are for
    input_file: str
    # Chosen at the start, so that writing the results again after a crash makes no second file.
    output_file: str
    error_file: str
    created_s: int
    expires_s: int
    results_retention_s: int  # after which the files of results are deleted
    status: BatchStatus = "validating"
    metadata: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None  # the one that all lines name; None: not known yet
    num_lines: int = 0
    # Lines whose results are written. A running batch counts its own.
    num_completed: int = 0
    num_failed: int = 0
    has_output_file: bool = False
    has_error_file: bool = False
    errors: tuple[BatchError, ...] = ()
    is_expiring: bool = False  # whether it ended before all lines were done, as its time was over
    in_progress_s: int | None = None
    finalizing_s: int | None = None
    cancelling_s: int | None = None
    completed_s: int | None = None
    failed_s: int | None = None
    expired_s: int | None = None
    cancelled_s: int | None = None

    @property
    def is_finished(self) -> bool:
        """Whether nothing about it changes any more."""
        return self.status not in UNFINISHED

    @property
    def may_be_cancelled(self) -> bool:
        """Whether lines of it may still run."""
        return self.status in ("validating", "in_progress")

    def start(self, now_s: int, num_lines: int, model: str | None) -> "Batch":
        """Run the lines of the checked input file."""
        return replace(
            self, status="in_progress", in_progress_s=now_s, num_lines=num_lines, model=model
        )

    def fail(self, now_s: int, errors: tuple[BatchError, ...]) -> "Batch":
        """End a batch whose input file is refused."""
        return replace(self, status="failed", failed_s=now_s, errors=errors)

    def cancel(self, now_s: int) -> "Batch":
        """Stop the lines, and write the results that they have."""
        return replace(self, status="cancelling", cancelling_s=now_s)

    def finalize(
        self, now_s: int, *, is_expiring: bool = False, errors: tuple[BatchError, ...] = ()
    ) -> "Batch":
        """Run no further line, and write the results. errors: for which it then fails."""
        return replace(
            self,
            status="finalizing",
            finalizing_s=now_s,
            is_expiring=is_expiring,
            errors=errors,
        )

    def finish(self, now_s: int, *, has_output_file: bool, has_error_file: bool) -> "Batch":
        """End a batch whose results are written."""
        ended = replace(self, has_output_file=has_output_file, has_error_file=has_error_file)
        if self.status == "cancelling":
            return replace(ended, status="cancelled", cancelled_s=now_s)
        if self.is_expiring:
            return replace(ended, status="expired", expired_s=now_s)
        if self.errors:
            return replace(ended, status="failed", failed_s=now_s)
        return replace(ended, status="completed", completed_s=now_s)

    def with_counts(self, num_completed: int, num_failed: int) -> "Batch":
        """Return it with the present counts of its results."""
        return replace(self, num_completed=num_completed, num_failed=num_failed)
