"""A gate that a user sets on a query of their own."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NoData = Literal["Hold", "Pass", "Fail"]
NAMES = ("namespace", "service", "revision", "stable")
_NAME = re.compile(rf"\$({'|'.join(NAMES)})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGate:
    """server: the URL of a Prometheus. minimum, maximum: both allowed. initial_delay_s: before the
    first measurement. failure_limit: so many may fail. no_data: what it means that there is none."""

    name: str
    server: str
    query: str
    minimum: float = -math.inf
    maximum: float = math.inf
    interval_s: float = 60.0
    initial_delay_s: float = 0.0
    failure_limit: int = 0
    no_data: NoData = "Hold"

    def query_for(self, names: Mapping[str, str]) -> str:
        """The query with what NAMES stand for; any other $ is left alone."""
        return _NAME.sub(lambda match: names[match[1]], self.query)
