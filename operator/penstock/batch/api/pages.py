"""Pages of lists: the parameters `after`, `limit` and `order`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.batch.api.errors import ApiError
from penstock.core.batches.records import Batch, StoredFile

Record = TypeVar("Record", StoredFile, Batch)


def page(
    records: Sequence[Record],
    query: Mapping[str, str],
    show: Callable[[Record], dict[str, Any]],
    *,
    default_limit: int,
    max_limit: int,
) -> dict[str, Any]:
    """Return a page of records. records: the oldest first. Raises ApiError."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ApiError(400, "order must be asc or desc", param="order")
    ordered = list(records if order == "asc" else reversed(records))
    if (after := query.get("after")) is not None:
        place = next((at for at, each in enumerate(ordered) if each.id == after), None)
        if place is None:
            message = "after must be the id of an object that is listed: begin without it"
            raise ApiError(400, message, param="after")
        ordered = ordered[place + 1 :]
    limit = _limit(query.get("limit", str(default_limit)), max_limit)
    shown = [show(each) for each in ordered[:limit]]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(ordered) > limit,
    }


def _limit(text: str, most: int) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not is_number or not 1 <= int(text) <= most:
        raise ApiError(400, f"limit must be a number from 1 to {most}", param="limit")
    return int(text)
