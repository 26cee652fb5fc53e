"""Reads engines' metrics from a Prometheus server, for pods that the operator cannot reach."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.clients.pods.exposition import Samples, labels_text
from penstock.clients.pods.scrape import WANTED, reading_of
from penstock.clients.prometheus.promql import (
    INVALID_ANSWER_ERRORS,
    QueryError,
    QueryLimits,
    Server,
    ask,
)
from penstock.core.scaling.signals import STALE_S, EngineReading, Missing

# The operator's tick waits for the response, which has about seventy series per pod.
LIMITS = QueryLimits(timeout_s=1.5, max_bytes=16 << 20)
# Bound on the length of a query, which proxies may limit.
PODS_PER_QUERY = 50
# Readings older than STALE_S are unused. The extra 10 s tell a slow scrape from none.
WINDOW_S = STALE_S + 10

Read = Mapping[str, EngineReading | Missing]


class PrometheusScraper:
    """Reads engines' metrics from one Prometheus server. now: the clock of the readings.

    Errors of the server are returned as Missing, with the reason.
    """

    def __init__(self, server: Server, now: Callable[[], float]) -> None:
        self._server = server
        self._now = now

    async def read(self, namespace: str, pods: Sequence[str]) -> Read:
        """Return the newest scrape of each pod, with the time at which Prometheus made it."""
        parts = [
            self._part(namespace, pods[first : first + PODS_PER_QUERY])
            for first in range(0, len(pods), PODS_PER_QUERY)
        ]
        found: dict[str, EngineReading | Missing] = {}
        for part in await asyncio.gather(*parts):
            found |= part
        return found

    async def _part(self, namespace: str, pods: Sequence[str]) -> Read:
        try:
            answered = await ask(self._server, query(namespace, pods), LIMITS)
            return readings(pods, answered.result, answered.at_s, self._now())
        except QueryError as error:
            reason = str(error)
        except INVALID_ANSWER_ERRORS:
            reason = f"{self._server.host} does not answer as Prometheus does"
        return {pod: Missing(pod, reason) for pod in pods}


def query(namespace: str, pods: Iterable[str]) -> str:
    """Return the PromQL query for all metrics of the pods, by the labels that a PodMonitor sets."""
    names, among = "|".join(WANTED), "|".join(pods).replace(".", "[.]")
    return (
        f'{{__name__=~"{names}",namespace="{namespace}",pod=~"{among}"}}[{WINDOW_S * 1000:.0f}ms]'
    )


def readings(pods: Iterable[str], result: Any, server_s: float, now_s: float) -> Read:
    """Convert a result to readings by pod. server_s: time of the result, on the server's clock.

    Raises one of INVALID_ANSWER_ERRORS if the result is no matrix.
    """
    series: dict[str, list[Any]] = defaultdict(list)
    for each in result:
        if each.get("values"):
            series[each["metric"]["pod"]].append(each)
    return {pod: _reading(pod, series.get(pod, []), server_s, now_s) for pod in pods}


def _reading(pod: str, series: list[Any], server_s: float, now_s: float) -> EngineReading | Missing:
    """Convert the series of a pod. Only series of its newest scrape count, not those of another job."""
    if not series:
        return Missing(pod, f"Prometheus has none of it in the last {WINDOW_S:.0f} s")
    scraped_s = max(each["values"][-1][0] for each in series)
    newest: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for each in series:
        at_s, value = each["values"][-1]
        if at_s == scraped_s:
            labels = dict(each["metric"])
            newest[labels.pop("__name__")].append((labels_text(labels), float(value)))
    age_s = max(0.0, server_s - scraped_s)
    return reading_of(pod, Samples(newest), now_s - age_s, "Prometheus")
