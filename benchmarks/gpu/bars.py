"""The bars of a run, and the summary that says which were reached. Imports no torch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from benchmarks.gpu import results
from benchmarks.gpu.context import Record

MAX_FAILURES, MAX_REASON = 30, 300  # that the summary prints, and characters of each


@dataclass(frozen=True, slots=True)
class Bar:
    """Limit of a figure of a step's records. applies: to which records; the worst one counts."""

    name: str
    step: str
    figure: str
    limit: float
    is_minimum: bool
    applies: Callable[[Record], bool] = lambda record: True

    def __str__(self) -> str:
        return f"{'>=' if self.is_minimum else '<='} {self.limit:g} {self.name}"

    def worst(self, records: list[Record]) -> float | None:
        """The worst figure, NaN if one is not finite; None if no record has it."""
        values = [
            value
            for record in records
            if record["step"] == self.step and self.applies(record)
            if (value := _number(record.get(self.figure))) is not None
        ]
        if any(math.isnan(value) for value in values):
            return math.nan
        return (min if self.is_minimum else max)(values, default=None)

    def is_reached(self, value: float) -> bool:
        return value >= self.limit if self.is_minimum else value <= self.limit

    def verdict(self, records: list[Record]) -> str:
        """The worst figure, and whether it reached the bar."""
        value = self.worst(records)
        if value is None:
            return "not measured"
        return f"{value:.3g}, {'reached' if self.is_reached(value) else 'MISSED'}"


def _number(value: object) -> float | None:
    """A figure as a number. Results have infinities and NaN as text: all of these are NaN."""
    if value in ("nan", "inf", "-inf"):
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def _is_long_decode(record: Record) -> bool:
    return bool(record.get("batch", 0) >= 32 and record.get("context", 0) >= 2048)


def _is_whole_prompt(record: Record) -> bool:
    """Whether the record is of 8,192 tokens of the 8B shape in one step."""
    return (
        record.get("shape") == "8b"
        and record.get("num_tokens") == record.get("chunk_tokens") == 8192
    )


BARS = (
    Bar("paged decode, share of the copy's bandwidth, batch >= 32, context >= 2,048",
        "c", "bandwidth_share", 0.85, True, _is_long_decode),
    Bar("decode step / time to read weights and KV cache", "d", "ratio_to_bound", 1.3, False),
    Bar("prefill of 8,192 tokens at 8B, share of the bf16 peak",
        "e", "peak_share", 0.5, True, _is_whole_prompt),
    Bar("GPU busy in steady decode with 64 streams", "f", "gpu_busy", 0.95, True,
        lambda r: r.get("streams") == 64),
)  # fmt: skip


def failures(records: list[Record]) -> list[Record]:
    """The records of checks that failed, and of items that ended in an error."""
    return [record for record in records if record.get("ok") is False or "error" in record]


def summary(records: list[Record], out: TextIO) -> int:
    """Print what each step did, the failures and the bars. Returns the exit status: 1 if anything failed."""
    for letter in dict.fromkeys(record["step"] for record in records):
        own = [record for record in records if record["step"] == letter]
        items = [record for record in own if "item" in record]
        print(f"{letter}: {len(items)} items, {len(failures(own))} failed", file=out)
        for record in own:
            if "left_out" in record:
                what = f"{record['item']}, " if "item" in record else ""
                print(f"{letter}: left out: {what}{record['left_out']}", file=out)
    failed = failures(records)
    for record in failed[:MAX_FAILURES]:
        item = record.get("item", "outside of its items")
        print(f"FAILED {record['step']} {item}: {_reason(record)}", file=out)
    if len(failed) > MAX_FAILURES:
        print(f"FAILED {len(failed) - MAX_FAILURES} more, see {results.FILE}", file=out)
    if any(record.get("item") == "machine" and record.get("device") == "cpu" for record in records):
        print("bars: none is judged without a GPU", file=out)
    else:
        for bar in BARS:
            print(f"bar {bar}: {bar.verdict(records)}", file=out)
    return 1 if failed else 0


def _reason(record: Record) -> str:
    """Reason of a failure in a line: the first of an exception's message or of the differences.

    An error of CUDA goes on with advice, and differences with further cases. An error without a trace
    ends with its reason.
    """
    if reason := record.get("reason"):
        return str(reason)[:MAX_REASON]
    if lines := str(record.get("error") or "").strip().splitlines():
        return lines[-1][-MAX_REASON:]
    first, *others = str(record.get("difference") or "").strip().splitlines() or [
        "the check failed"
    ]
    return first[:MAX_REASON] + (f" (and more, see {results.FILE})" if others else "")
