"""Workload of a scenario that replays a recorded trace."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from penstock.sim.profile import Record

Format = Literal["azure", "mooncake", "servegen", "burstgpt"]


class Trace(Record):
    """Recorded trace as a workload.

    rate_scale: multiple of the recorded rate; times stay as recorded. from_s: start within the trace.
    """

    kind: Literal["trace"] = "trace"
    path: Path
    format: Format
    rate_scale: float = Field(default=1.0, gt=0)
    from_s: float = Field(default=0.0, ge=0)
