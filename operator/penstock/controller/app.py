"""The operator process: probes, leader election, and the leader's work."""

import asyncio

from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection

from penstock.chart.names import LEASE_NAME
from penstock.clients.kube import Kube, api_client, load_configuration
from penstock.controller.health import Health
from penstock.controller.leader import Leader, LeadershipLost
from penstock.controller.lease import LEASE_S, RENEW_DEADLINE_S, RETRY_S, Lease
from penstock.controller.placements import Placements
from penstock.controller.recorder import Recorder
from penstock.controller.settings import Settings
from penstock.controller.stop_signals import stop_on_signals


async def run(settings: Settings) -> None:
    """Run the operator until SIGTERM or SIGINT. Raises LeadershipLost, or the error that ended a watch."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    configuration = await load_configuration()
    health, recorder, placements = Health(), Recorder(), Placements()
    health.metrics.observe_credentials(configuration)
    observe = health.metrics.observe_api_request
    async with api_client(configuration, "penstock-operator", observe) as api:
        runner = await health.serve(settings.host, settings.port, recorder, placements)
        lease = Lease(LEASE_NAME, settings.namespace, settings.identity, api, health.failures)
        kube = Kube(api, write_time_s=lease.remaining_s)
        leader = Leader(kube, configuration, settings, health, recorder, stop)
        placements.source = leader.placement
        election = LeaderElection(
            Config(
                lease,
                lease_duration=LEASE_S,
                renew_deadline=RENEW_DEADLINE_S,
                retry_period=RETRY_S,
                onstarted_leading=leader.lead,
                onstopped_leading=_stop_leading,
            )
        )
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(health.beat()),
                    group.create_task(_campaign(election)),
                    group.create_task(leader.raise_errors()),
                ]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await leader.end()
            await lease.release()
            await runner.cleanup()


async def _campaign(election: LeaderElection) -> None:
    """Wait for the Lease and renew it. Raises LeadershipLost if a renewal fails."""
    await election.run()
    raise LeadershipLost("the Lease could not be renewed")


async def _stop_leading() -> None:
    """Do nothing: `_campaign` raises LeadershipLost, which ends the process."""
