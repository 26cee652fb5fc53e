"""Leader election on an event loop of its own, so that a busy operator does not lose the Lease."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kubernetes.aio import client
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection

from penstock.chart.names import LEASE_NAME
from penstock.clients.kubernetes.client import api_client
from penstock.controller.election.lease import LEASE_S, RENEW_DEADLINE_S, RETRY_S, Lease
from penstock.controller.election.loop_thread import LoopThread
from penstock.controller.http.server import OperatorEndpoints
from penstock.controller.process.settings import Settings

logger = logging.getLogger(__name__)


class LeadershipLost(Exception):
    """Another replica may lead now. The process ends, and is restarted as a standby."""


class Election:
    """Takes part in the leader election. elected: set once this replica leads."""

    def __init__(
        self, thread: LoopThread, lease: Lease, is_loop_running: Callable[[], bool]
    ) -> None:
        self._thread = thread
        self._lease = lease
        self._is_loop_running = is_loop_running
        self._main_loop = asyncio.get_running_loop()
        self.elected = asyncio.Event()

    def remaining_s(self) -> float:
        """Seconds during which no other replica can lead; below 0 after a long pause."""
        return self._lease.remaining_s()

    async def campaign(self) -> None:
        """Wait for the Lease and renew it, until cancelled. Raises LeadershipLost if a renewal fails."""
        config = Config(
            self._lease,
            lease_duration=LEASE_S,
            renew_deadline=RENEW_DEADLINE_S,
            retry_period=RETRY_S,
            onstarted_leading=self._announce,
            onstopped_leading=_do_nothing,
        )
        await self._thread.run(_GuardedElection(config, self._is_loop_running).run())
        raise LeadershipLost("the Lease could not be renewed")

    async def _announce(self) -> None:
        self._main_loop.call_soon_threadsafe(self.elected.set)


async def _do_nothing() -> None:
    """Do nothing: `campaign` raises LeadershipLost, which ends the process."""


class _GuardedElection(LeaderElection):
    """Leader election that neither takes nor renews the Lease while the main loop is stuck."""

    def __init__(self, config: Config, is_loop_running: Callable[[], bool]) -> None:
        super().__init__(config)
        self._is_loop_running = is_loop_running

    async def try_acquire_or_renew(self) -> bool:
        if not self._is_loop_running():
            logger.error("the Lease is neither taken nor renewed: the event loop is stuck")
            return False
        return await super().try_acquire_or_renew()


@asynccontextmanager
async def join_election(
    configuration: client.Configuration, settings: Settings, endpoints: OperatorEndpoints
) -> AsyncIterator[Election]:
    """Join the election. Gives the Lease back at the end."""
    with LoopThread("election") as thread:
        observe = endpoints.metrics.observe_api_request
        api = api_client(configuration, "penstock-operator", observe)
        lease = Lease(LEASE_NAME, settings.namespace, settings.identity, api, endpoints.failures)
        try:
            yield Election(thread, lease, endpoints.is_loop_running)
        finally:
            await thread.run(lease.release())
            await thread.run(api.close())
