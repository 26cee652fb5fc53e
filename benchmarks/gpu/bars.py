"""The bars of a run, and the summary that says which were reached. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from benchmarks.gpu.context import Record


@dataclass(frozen=True, slots=True)
class Bar:
    """Limit of a figure of a step's records. applies: to which records; the worst one counts."""

    name: str
    step: str
    figure: str
    limit: float
    is_minimum: bool
    applies: Callable[[Record], bool] = lambda record: True

    def worst(self, records: list[Record]) -> float | None:
        """The worst figure; None if no record has it."""
        values = [
            float(record[self.figure])
            for record in records
            if record["step"] == self.step
            and isinstance(record.get(self.figure), int | float)
            and self.applies(record)
        ]
        return (min if self.is_minimum else max)(values, default=None)

    def is_reached(self, value: float) -> bool:
        return value >= self.limit if self.is_minimum else value <= self.limit


def _is_long_decode(record: Record) -> bool:
    return bool(
        record.get("is_chosen")
        and record.get("batch", 0) >= 32
        and record.get("context", 0) >= 2048
    )


BARS = (
    Bar("paged decode, share of the copy's bandwidth, batch >= 32, context >= 2,048",
        "c", "bandwidth_share", 0.85, True, _is_long_decode),
    Bar("decode step / time to read weights and KV cache", "d", "ratio_to_bound", 1.3, False),
    Bar("prefill of 8,192 tokens at 8B, share of the bf16 peak",
        "e", "peak_share", 0.5, True, lambda r: r.get("shape") == "8b" and r.get("tokens") == 8192),
    Bar("GPU busy in steady decode with 64 streams", "f", "gpu_busy", 0.95, True),
)  # fmt: skip


def failures(records: list[Record]) -> list[Record]:
    """The records of checks that failed, and of items that ended in an error."""
    return [record for record in records if record.get("ok") is False or "error" in record]


def summary(records: list[Record], out: TextIO) -> int:
    """Print what each step did, the failures and the bars. Returns the exit status: 1 if anything failed."""
    letters = list(dict.fromkeys(record["step"] for record in records))
    for letter in letters:
        own = [record for record in records if record["step"] == letter]
        items = [record for record in own if "item" in record]
        left_out = "".join(f", left out: {r['left_out']}" for r in own if "left_out" in r)
        print(f"{letter}: {len(items)} items, {len(failures(items))} failed{left_out}", file=out)
    for record in failures(records):
        print(f"FAILED {record['step']} {record['item']}: {_reason(record)}", file=out)
    for bar in BARS:
        value = bar.worst(records)
        verdict = "not measured"
        if value is not None:
            verdict = f"{value:.3g}, {'reached' if bar.is_reached(value) else 'MISSED'}"
        print(
            f"bar {'>=' if bar.is_minimum else '<='} {bar.limit:g} {bar.name}: {verdict}", file=out
        )
    return 1 if failures(records) else 0


def _reason(record: Record) -> str:
    text: Any = record.get("error") or record.get("difference") or "the check failed"
    return str(text).strip().splitlines()[-1]
