"""The leader's Lease, by the client library's election."""

from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock


class Lease(LeaseLock):
    """LeaseLock whose `create` works: the library's passes pretty=True, which its client refuses."""

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        body = client.V1Lease(
            metadata=client.V1ObjectMeta(name=name), spec=self.update_lease(election_record)
        )
        try:
            await self.api_instance.create_namespaced_lease(namespace, body)
        except ApiException:
            return False
        return True
