"""The operator process: probes, leader election, and the leader's work."""

import asyncio

from penstock.clients.kubernetes.client import Kube, api_client
from penstock.clients.kubernetes.kubeconfig import load_configuration
from penstock.controller.election.election import Election, join_election
from penstock.controller.http.placements import Placements
from penstock.controller.http.recorder import Recorder
from penstock.controller.http.server import OperatorEndpoints
from penstock.controller.leader import Leader
from penstock.controller.process.settings import Settings
from penstock.controller.process.stop_signals import stop_on_signals


async def run(settings: Settings) -> None:
    """Run the operator until SIGTERM or SIGINT. Raises LeadershipLost, or the error that ended a watch."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    configuration = await load_configuration()
    endpoints, recorder, placements = OperatorEndpoints(), Recorder(), Placements()
    endpoints.metrics.observe_credentials(configuration)
    observe = endpoints.metrics.observe_api_request
    async with (
        api_client(configuration, "penstock-operator", observe) as api,
        endpoints.serve(settings.host, settings.port, recorder, placements),
        join_election(configuration, settings, endpoints) as election,
    ):
        kube = Kube(api, write_time_s=election.remaining_s)
        leader = Leader(kube, configuration, settings, endpoints, recorder, stop)
        placements.source = leader.placement
        await _run_until(stop, endpoints, election, leader)


async def _run_until(
    stop: asyncio.Event, endpoints: OperatorEndpoints, election: Election, leader: Leader
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(endpoints.beat()),
            group.create_task(election.campaign()),
            group.create_task(_lead(election, leader)),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _lead(election: Election, leader: Leader) -> None:
    await election.elected.wait()
    await leader.lead()
