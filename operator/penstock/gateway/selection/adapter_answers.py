"""Learns from the answers to a request which engines have a copy of its adapter."""

from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.upstream.response import UpstreamResponse
from penstock.gateway.upstream.upstream import AttemptFailed


class AdapterAnswers:
    """Results of the attempts of one request for an adapter."""

    def __init__(self, state: GatewayState, adapter: Adapter) -> None:
        self._state = state
        self._adapter = adapter
        self._missing: set[str] = set()  # pods that answered 404, though they had the adapter
        self._listed: set[str] = set()  # those that listed the adapter after a second 404

    async def interpret(
        self, result: UpstreamResponse | AttemptFailed, endpoint: Endpoint
    ) -> UpstreamResponse | AttemptFailed:
        """The result of an attempt, with failures of the copy told from those of the engine.

        A 404 says that the engine has unloaded the adapter, which is loaded before the next attempt there;
        if the engine lists it all the same, its next 404 has another reason and is passed on. An engine that
        is unavailable may fail to read the adapter again, and answers other requests all the same.
        """
        if isinstance(result, AttemptFailed):
            is_unavailable = result.ending is Ending.UNAVAILABLE
            return AttemptFailed(Ending.COPY_UNAVAILABLE) if is_unavailable else result
        pod = endpoint.pod
        if result.status != 404 or pod in self._listed:
            return result
        result.close()
        if pod in self._missing and await self._state.adapters.is_listed(self._adapter, endpoint):
            self._listed.add(pod)
        self._missing.add(pod)
        return AttemptFailed(Ending.NO_COPY)
