"""Settings of admission."""

from dataclasses import dataclass
from typing import Literal

Policy = Literal["none", "fcfs", "deadline"]


@dataclass(frozen=True, slots=True)
class AdmissionSpec:
    """Settings of admission. Requests beyond max_queued or max_wait_s are refused."""

    policy: Policy = "deadline"
    ttft_s: float = 1.0
    max_queued: int = 1024
    max_wait_s: float = 60.0
