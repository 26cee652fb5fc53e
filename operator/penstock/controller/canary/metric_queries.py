"""Runs a canary's user-defined Prometheus queries on their schedule."""

import asyncio
from collections.abc import Mapping

from penstock.clients.prometheus.metric_gates import Prometheus
from penstock.core.canary.metric_gate import NOT_MEASURED, MetricGateState, advance, record_answer
from penstock.core.spec.metric_gate import MetricGate


class MetricQueries:
    """Evaluates metric gates: runs the queries that are due and updates each gate's state."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus

    async def evaluate(
        self,
        gates: tuple[MetricGate, ...],
        states: Mapping[str, MetricGateState],
        placeholders: Mapping[str, str],
        elapsed_s: float,
    ) -> dict[str, MetricGateState]:
        """Return the new state of each gate, by its name. The queries run concurrently.

        states: by name, as of the last call; a gate without one is new. placeholders: values for the
        query text. elapsed_s: judged time since the last call.
        """

        async def evaluate_gate(gate: MetricGate) -> MetricGateState:
            state, is_due = advance(gate, states.get(gate.name, NOT_MEASURED), elapsed_s)
            if not is_due:
                return state
            answer = await self._prometheus.ask(gate.server, gate.query_for(placeholders))
            return record_answer(gate, state, answer)

        evaluated = await asyncio.gather(*(evaluate_gate(gate) for gate in gates))
        return {gate.name: state for gate, state in zip(gates, evaluated, strict=True)}
