"""Turns a trace file into requests. Files are read once; the seed decides the sampling."""

from functools import cache
from pathlib import Path
from random import Random

from penstock.sim.request import Request
from penstock.sim.traces import azure, burstgpt, mooncake, servegen
from penstock.sim.traces.row import Row
from penstock.sim.traces.source import Trace

# At a higher rate, copies of a request arrive within this time of it.
JITTER_S = 10.0


def requests_of(trace: Trace, duration_s: float, random: Random) -> tuple[list[Request], int]:
    """Requests in order of arrival, and the number of tokens per prefix id (0: no prefixes)."""
    if trace.format == "servegen":
        drawn = servegen.rows(
            clients_of(trace.path), trace.from_s, duration_s, trace.rate_scale, random
        )
        chosen = [(row.at_s - trace.from_s, row) for row in drawn]
    else:
        chosen = [
            (at_s, row)
            for row in rows_of(trace.path, trace.format)
            if trace.from_s <= row.at_s < trace.from_s + duration_s
            for at_s in _scaled(row.at_s - trace.from_s, trace.rate_scale, random)
        ]
    chosen.sort(key=lambda pair: pair[0])
    requests = [
        Request(
            f"r{i}",
            at_s,
            row.prompt_tokens,
            row.output_tokens,
            row.prefix,
            session=mooncake.session_of(row.prefix),
        )
        for i, (at_s, row) in enumerate(chosen)
    ]
    return requests, mooncake.BLOCK_TOKENS if trace.format == "mooncake" else 0


clients_of = cache(servegen.clients)


@cache
def rows_of(path: Path, form: str) -> tuple[Row, ...]:
    """Rows of a trace file in order, with the first arrival at 0."""
    read = {"azure": azure.rows, "mooncake": mooncake.rows, "burstgpt": burstgpt.rows}[form]
    with path.open() as lines:
        rows = sorted(read(lines), key=lambda row: row.at_s)
    first_s = rows[0].at_s if rows else 0.0
    return tuple(row._replace(at_s=row.at_s - first_s) for row in rows)


def _scaled(at_s: float, scale: float, random: Random) -> list[float]:
    """Arrival times for one recorded request at `scale` times the rate.

    Below 1 a request is kept with probability `scale`; above 1 it gets copies at slightly shifted times.
    """
    copies = int(scale) + (random.random() < scale % 1)
    moved = [max(0.0, at_s + random.uniform(-JITTER_S, JITTER_S)) for _ in range(copies - 1)]
    return [at_s, *moved] if copies else []
