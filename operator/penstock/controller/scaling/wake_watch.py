"""Polls gateways for requests for services at zero, and reports them at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from penstock.clients.kubernetes.client import Object
from penstock.clients.machine.clock import monotonic
from penstock.clients.pods.wake_poll import WakePoll
from penstock.controller.process.failures import Failures
from penstock.controller.scaling.gateway_pods import GatewayPod, gateway_pods

# Time between two updates of the list of gateways, in seconds.
REFRESH_S = 1.0
# Shortest and longest pause from one answer of a gateway to the next poll of it, in seconds. In between, the
# pause is IDLE_SHARE times the time that handling the answer took: requests that come all the time must not
# keep the operator busy. A tick, every two seconds, decides on all services anyway.
MIN_INTERVAL_S, MAX_INTERVAL_S, IDLE_SHARE = 0.2, 2.0, 10.0
# Time until the next poll of a gateway that does not answer, in seconds.
RETRY_S = 2.0


class WakeWatch:
    """Keeps one poll open at each ready gateway.

    gateways: the gateways' pods; None until they have been listed. called: called with the gateway to which a
    request came for a service at zero.
    """

    def __init__(
        self,
        gateways: Callable[[], Iterable[Object] | None],
        called: Callable[[GatewayPod], Awaitable[None]],
        failures: Failures,
    ) -> None:
        self._poll = WakePoll()
        self._gateways = gateways
        self._called = called
        self._failures = failures

    async def run(self) -> None:
        """Poll all gateways until cancelled."""
        polls: dict[GatewayPod, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    with self._failures.isolate_pass("scaler"):
                        self._follow_ready(polls, group)
                    await asyncio.sleep(REFRESH_S)
        finally:
            await self._poll.close()

    def _follow_ready(
        self, polls: dict[GatewayPod, asyncio.Task[None]], group: asyncio.TaskGroup
    ) -> None:
        """Start to poll gateways that became ready, and stop to poll those that are not any more."""
        ready = {pod for pod in gateway_pods(self._gateways() or ()) if pod.is_ready}
        for pod in polls.keys() - ready:
            polls.pop(pod).cancel()
        for pod in ready - polls.keys():
            polls[pod] = group.create_task(self._follow(pod))

    async def _follow(self, pod: GatewayPod) -> None:
        """Poll one gateway until cancelled."""
        token = ""
        while True:
            answer = await self._poll.wait(pod.address, token)
            if answer is None:
                await asyncio.sleep(RETRY_S)
                continue
            answered_s = monotonic()
            # The first answer only gives the gateway's present token: the next tick reads its requests.
            if token not in ("", answer):
                with self._failures.isolate_errors("scaler"):
                    await self._called(pod)
            token = answer
            pause_s = IDLE_SHARE * (monotonic() - answered_s)
            await asyncio.sleep(min(max(MIN_INTERVAL_S, pause_s), MAX_INTERVAL_S))
