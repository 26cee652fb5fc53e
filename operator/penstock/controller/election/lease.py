"""Lease for the client library's LeaderElection, with request time-outs and the time left to write."""

import asyncio
import logging
import math

import aiohttp
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from penstock.clients.machine.clock import monotonic
from penstock.controller.process.failures import Failures

logger = logging.getLogger(__name__)

# When a leader dies silently, another takes over after at most lease + retry = 12 s.
LEASE_S, RENEW_DEADLINE_S, RETRY_S = 10, 7, 2
# A get and an update that start just before the renew deadline end before the Lease expires.
REQUEST_TIMEOUT_S = 1.5
# Writes must end this long before the Lease expires, as the API server may apply a write slightly
# after its time-out.
SAFETY_S = 1.0


class Lease(LeaseLock):
    """LeaseLock with request time-outs, a release, and the remaining time as a leader."""

    def __init__(
        self, name: str, namespace: str, identity: str, api: client.ApiClient, failures: Failures
    ) -> None:
        super().__init__(name, namespace, identity, api)
        self._failures = failures
        self._renewed_s = -math.inf

    def remaining_s(self) -> float:
        """Seconds during which no other replica can hold the Lease; below 0 after a long pause."""
        return self._renewed_s + LEASE_S - SAFETY_S - monotonic()

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        """Read the Lease: (True, record or None), or (False, error). Does not raise."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await super().get(name, namespace)
        except (aiohttp.ClientError, TimeoutError) as error:
            return False, ApiException(reason=f"the API server cannot be reached: {error!r}")
        except Exception as error:  # noqa: BLE001 - the election retries until its deadline
            self._failures.report("lease", f"{namespace}/{name}", error)
            return False, ApiException(reason=f"the Lease cannot be read: {error!r}")

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        """Create the Lease. Returns False after an error.

        Overridden because the library's method passes pretty=True, which its client refuses, and makes no
        owner.
        """
        started_s = monotonic()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                owners = await self._owners(namespace)
                metadata = client.V1ObjectMeta(name=name, owner_references=owners)
                spec = self.update_lease(election_record)
                body = client.V1Lease(metadata=metadata, spec=spec)
                await self.api_instance.create_namespaced_lease(namespace, body)
        except (ApiException, aiohttp.ClientError, TimeoutError):
            return False
        except Exception as error:  # noqa: BLE001 - as for `get`
            self._failures.report("lease", f"{namespace}/{name}", error)
            return False
        self._renewed_s = started_s
        return True

    async def _owners(self, namespace: str) -> list[client.V1OwnerReference]:
        """Owner references to this operator's service account, so that an uninstall deletes the Lease too.

        Empty outside of a pod, or if the API server does not tell who asks.
        """
        api = client.AuthenticationV1Api(api_client=self.api_instance.api_client)
        try:
            review = await api.create_self_subject_review(client.V1SelfSubjectReview())
        except ApiException as error:
            logger.info("the Lease gets no owner: %s", error.reason)
            return []
        user = review.status and review.status.user_info
        account = (user and user.username) or ""
        prefix = f"system:serviceaccount:{namespace}:"
        if not user or not user.uid or not account.startswith(prefix):
            return []
        name = account.removeprefix(prefix)
        return [
            client.V1OwnerReference(
                api_version="v1", kind="ServiceAccount", name=name, uid=user.uid
            )
        ]

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Renew or take the Lease. Returns False after a conflict or an error."""
        started_s = monotonic()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                is_ours = await super().update(name, namespace, updated_record)
        except (aiohttp.ClientError, TimeoutError):
            return False
        except Exception as error:  # noqa: BLE001 - as for `get`
            self._failures.report("lease", f"{namespace}/{name}", error)
            return False
        if is_ours:
            self._renewed_s = started_s
        return is_ours

    async def release(self) -> None:
        """Release the Lease if this replica holds it, so that a standby need not wait for its expiry."""
        has_read, _ = await self.get(self.name, self.namespace)
        lease = self.lease_reference
        if not has_read or lease is None or lease.spec is None:
            return
        if lease.spec.holder_identity != self.identity:
            return
        lease.spec.holder_identity = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self.api_instance.replace_namespaced_lease(self.name, self.namespace, lease)
        except (ApiException, aiohttp.ClientError, TimeoutError) as error:
            logger.info("the Lease was not released: %r", error)
