"""The latency objectives of a service."""

from dataclasses import dataclass

from penstock.core.formats.quantity import parse_duration_s

# Time of an objective that is not set, in seconds: more than any request takes. Finite, so that records of
# it can be written as JSON.
UNBOUNDED_S = 1e9
# Maximum planned waiting time without a TTFT objective, in seconds, because queues must be bounded.
MAX_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Objectives:
    """The latencies that a request must meet, and the fraction of all requests that must meet them."""

    ttft_s: float = UNBOUNDED_S
    tpot_s: float = UNBOUNDED_S
    attainment: float = 0.99

    @staticmethod
    def parse(ttft: str | None, tpot: str | None, attainment: str | None) -> "Objectives":
        """Objectives from the values of the API. Raises ValueError for another format."""
        return Objectives(
            UNBOUNDED_S if ttft is None else parse_duration_s(ttft),
            UNBOUNDED_S if tpot is None else parse_duration_s(tpot),
            Objectives().attainment if attainment is None else float(attainment),
        )

    @property
    def has_ttft(self) -> bool:
        return self.ttft_s < UNBOUNDED_S

    @property
    def has_tpot(self) -> bool:
        return self.tpot_s < UNBOUNDED_S

    @property
    def text(self) -> str:
        """The objectives that are set, such as "TTFT 2 s and TPOT 0.1 s"."""
        ttft = [f"TTFT {self.ttft_s:g} s"] if self.has_ttft else []
        tpot = [f"TPOT {self.tpot_s:g} s"] if self.has_tpot else []
        return " and ".join(ttft + tpot)

    @property
    def max_wait_s(self) -> float:
        """Time until the first token that queues and the number of replicas are planned for."""
        return self.ttft_s if self.has_ttft else MAX_WAIT_S
