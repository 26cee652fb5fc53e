"""Queries of users' metric gates, to the Prometheus servers that the operator is allowed to query."""

from collections.abc import Collection
from typing import Any

from penstock.clients.prometheus.promql import (
    INVALID_ANSWER_ERRORS,
    QueryError,
    QueryLimits,
    Server,
    ask,
)
from penstock.core.canary.metric_gate import Answer, QueryFailure

LIMITS = QueryLimits(timeout_s=5.0, max_bytes=256 << 10)


class Prometheus:
    """Runs queries on the allowed servers.

    hosts: those servers, as HOST or HOST:PORT. Without that limit, users who may write a service could
    make the operator send requests to any server in its network.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)

    async def ask(self, url: str, query: str) -> Answer:
        """Run a query that gives one number. Does not raise: an error is returned as QueryFailure."""
        server = Server(url)
        if server.host not in self._hosts:
            return QueryFailure(
                f"the operator may not ask {server.host}: start it with "
                f"--metrics-host={server.host}, or change the metric's server"
            )
        try:
            return _number((await ask(server, query, LIMITS)).result)
        except QueryError as error:
            return QueryFailure(str(error))
        except INVALID_ANSWER_ERRORS:
            return QueryFailure(f"{server.host} does not answer as Prometheus does")


def _number(result: Any) -> Answer:
    """Return the number of a scalar, or of a vector with one series."""
    if not result:
        return None
    if not isinstance(result[0], dict):
        value = float(result[1])
    elif len(result) > 1:
        return QueryFailure(
            f"the metric's query gives {len(result)} series: put sum(...), max(...) or the like "
            "around it"
        )
    elif "value" not in result[0]:
        return QueryFailure("the metric's query gives a range: it must give one number")
    else:
        value = float(result[0]["value"][1])
    return None if value != value else value
