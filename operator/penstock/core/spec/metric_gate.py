"""Settings of a metric gate: a user-defined Prometheus query with limits."""

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
    """A metric gate."""

    name: str
    server: str  # URL of a Prometheus
    query: str
    # minimum, maximum: inclusive limits
    minimum: float = -math.inf
    maximum: float = math.inf
    interval_s: float = 60.0
    initial_delay_s: float = 0.0  # before the first measurement
    failure_limit: int = 0  # number of failed measurements that are tolerated
    no_data: NoData = "Hold"  # effect of an empty result

    def query_for(self, names: Mapping[str, str]) -> str:
        """The query with the variables of NAMES, such as $service, replaced.

        names: value of each variable.
        """
        return _NAME.sub(lambda match: names[match[1]], self.query)
