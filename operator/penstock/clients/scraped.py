"""Engines' numbers as a Prometheus server has scraped them, for pods that the operator cannot reach."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.clients.exposition import Samples, labels_text
from penstock.clients.promql import Caps, Server, Unanswered, ask
from penstock.clients.scrape import WANTED, believed
from penstock.core.scaling.signals import STALE_S, EngineReading, Missing

# A tick waits for it. Of each pod there are some seventy series.
CAPS = Caps(timeout_s=1.5, max_bytes=16 << 20)
# In a query, whose text a proxy on the way may bound.
PODS_PER_QUERY = 50
# What is older says nothing; a little more tells silence from slowness.
WINDOW_S = STALE_S + 10

Read = Mapping[str, EngineReading | Missing]


class Scraped:
    """now: the clock of the readings. It never raises for what the server does."""

    def __init__(self, server: Server, now: Callable[[], float]) -> None:
        self._server = server
        self._now = now

    async def read(self, namespace: str, pods: Sequence[str]) -> Read:
        """Of each pod the newest scrape, of the time when Prometheus made it."""
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
            answered = await ask(self._server, query(namespace, pods), CAPS)
            return readings(pods, answered.result, answered.at_s, self._now())
        except Unanswered as error:
            reason = str(error)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            reason = f"{self._server.host} does not answer as Prometheus does"
        return {pod: Missing(pod, reason) for pod in pods}


def query(namespace: str, pods: Iterable[str]) -> str:
    """All that is read of engines, each with its time. Labels: those that a PodMonitor gives."""
    names, among = "|".join(WANTED), "|".join(pods).replace(".", "[.]")
    return (
        f'{{__name__=~"{names}",namespace="{namespace}",pod=~"{among}"}}[{WINDOW_S * 1000:.0f}ms]'
    )


def readings(pods: Iterable[str], result: Any, server_s: float, now_s: float) -> Read:
    """result: a matrix. server_s: when it was made, on the clock of its timestamps.

    Raises ValueError, KeyError, TypeError, AttributeError or IndexError for what is no matrix.
    """
    series: dict[str, list[Any]] = defaultdict(list)
    for each in result:
        if each.get("values"):
            series[each["metric"]["pod"]].append(each)
    return {pod: _reading(pod, series.get(pod, []), server_s, now_s) for pod in pods}


def _reading(pod: str, series: list[Any], server_s: float, now_s: float) -> EngineReading | Missing:
    """All series of one scrape have its time: what another job scraped, or what is gone, has not."""
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
    return believed(pod, Samples(newest), now_s - age_s, "Prometheus")
