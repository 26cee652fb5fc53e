"""Files and batches as OpenAI's API shows them."""

from dataclasses import asdict
from typing import Any

from penstock.core.batches.records import COMPLETION_WINDOW, Batch, StoredFile


def file_object(file: StoredFile) -> dict[str, Any]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.num_bytes,
        "created_at": file.created_s,
        "expires_at": file.expires_s,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


def batch_object(batch: Batch) -> dict[str, Any]:
    errors = None
    if batch.errors:
        errors = {"object": "list", "data": [asdict(error) for error in batch.errors]}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": errors,
        "input_file_id": batch.input_file,
        "completion_window": COMPLETION_WINDOW,
        "status": batch.status,
        "output_file_id": batch.output_file if batch.has_output_file else None,
        "error_file_id": batch.error_file if batch.has_error_file else None,
        "created_at": batch.created_s,
        "in_progress_at": batch.in_progress_s,
        "expires_at": batch.expires_s,
        "finalizing_at": batch.finalizing_s,
        "completed_at": batch.completed_s,
        "failed_at": batch.failed_s,
        "expired_at": batch.expired_s,
        "cancelling_at": batch.cancelling_s,
        "cancelled_at": batch.cancelled_s,
        "request_counts": {
            "total": batch.num_lines,
            "completed": batch.num_completed,
            "failed": batch.num_failed,
        },
        "metadata": dict(batch.metadata) or None,
    }
