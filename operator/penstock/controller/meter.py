"""The user's metrics of a canary, asked of their servers when they are due."""

import asyncio
from collections.abc import Mapping

from penstock.clients.prometheus import Prometheus
from penstock.core.canary.metric_gate import UNMEASURED, Measured, later, measured
from penstock.core.spec.metric_gate import MetricGate


class Meter:
    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus

    async def look(
        self,
        gates: tuple[MetricGate, ...],
        kept: Mapping[str, Measured],
        names: Mapping[str, str],
        length_s: float,
    ) -> dict[str, Measured]:
        """After length_s more, by name. kept: what they came to before. names: for their queries."""

        async def look_at(gate: MetricGate) -> Measured:
            after, is_due = later(gate, kept.get(gate.name, UNMEASURED), length_s)
            if not is_due:
                return after
            answer = await self._prometheus.ask(gate.server, gate.query_for(names))
            return measured(gate, after, answer)

        found = await asyncio.gather(*(look_at(gate) for gate in gates))
        return {gate.name: each for gate, each in zip(gates, found, strict=True)}
