"""A recorded trace as a workload."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from penstock.sim.profile import Record

Format = Literal["azure", "mooncake", "servegen", "burstgpt"]


class Trace(Record):
    """rate_scale: how many times the recorded rate; the recorded time stays.

    from_s: where in the trace to begin.
    """

    kind: Literal["trace"] = "trace"
    path: Path
    format: Format
    rate_scale: float = Field(default=1.0, gt=0)
    from_s: float = Field(default=0.0, ge=0)
