"""Record of one run against a cluster: its steps and faults."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Record:
    """Steps of one run, as (what, seconds, result), and what should not have happened."""

    steps: list[tuple[str, float, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, what: str, took_s: float, result: str) -> None:
        self.steps.append((what, took_s, result))
        print(f"{what}: {took_s:.2f} s: {result}", flush=True)

    def expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)
            print(f"FAULT: {fault}", flush=True)

    def print_table(self) -> None:
        """Print the record as Markdown."""
        print("\n| step | took | result |\n| --- | --- | --- |")
        for what, took_s, result in self.steps:
            print(f"| {what} | {took_s:.2f} s | {result} |")
        for fault in self.faults:
            print(f"FAULT: {fault}")
