"""Puts one request on the endpoint where it costs least."""

import math
from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.core.admission.requester import Requester
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.gateway.admission.reservation import Reservation
from penstock.gateway.state.gateway_state import GatewayState
from penstock.gateway.stats.request_record import RequestRecord


class RequestPlacement:
    """Places one request, without an admission queue.

    key: requests with the same one stay on one side. tokens: the request's estimated KV cache use.
    """

    def __init__(
        self,
        state: GatewayState,
        record: RequestRecord,
        requester: Requester,
        *,
        key: bytes | None,
        attributes: RequestAttributes,
        tokens: int,
    ) -> None:
        self._state, self._record, self._requester = state, record, requester
        self._key, self._attributes, self._tokens = key, attributes, tokens

    @property
    def home(self) -> bytes | None:
        """Key of the requests that go to one engine if they can; None: there is no such key.

        It is that of the session. Without one, the conversation's if there are several gateways: a single one
        finds the engine of a conversation in its index.
        """
        if self._key is not None or self._state.peers.count == 1:
            return self._key
        return self._attributes.conversation_key

    def place(self, endpoints: Sequence[Endpoint], draw: float, adapter: str = "") -> Reservation:
        """Choose one of the endpoints, at least one, and put the request there.

        draw: uniform in [0, 1). adapter: name in engines of the one that the request is for; empty: it is for
        the base model.
        """
        state, now, record = self._state, self._state.now(), self._record
        waiting = Waiting(
            "", record.arrived_s, math.inf, record.prompt_tokens, self._tokens, self._attributes,
            adapter=adapter, requester=self._requester, home=self.home,
        )  # fmt: skip
        loads = state.engines.of([each.pod for each in endpoints])
        chosen = state.engines.choose(waiting, loads, now, draw)
        placement = state.engines.send(waiting, chosen.load, now)
        state.endpoints.note_selected(chosen.load.pod, now)
        return Reservation(endpoints[chosen.index], placement, state.engines, state.now)
