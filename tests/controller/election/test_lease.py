"""The Lease: a leader's writes end before another replica can take it."""

import asyncio
import json

import pytest
from kubernetes.aio import client
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

from penstock.clients.kubernetes.client import MIN_WRITE_S, Kube
from penstock.clients.kubernetes.resources import CONFIG_MAPS
from penstock.controller.election import lease as leases
from penstock.controller.election.lease import LEASE_S, SAFETY_S, Lease
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.errors import Transient

AT = "2026-01-01 00:00:00.000001"


class ApiServer:
    """HTTP server. targets: requested paths. answer: body of each answer; None: it never answers."""

    def __init__(self):
        self.targets, self.answer = [], b"{}"

    async def connected(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.targets.append(head.split()[1])
        if self.answer is None:
            await reader.read()
        else:
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n" % len(self.answer) + self.answer
            )
        writer.close()


@pytest.fixture
async def server():
    made = ApiServer()
    listener = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    configuration = client.Configuration()
    configuration.host = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with client.ApiClient(configuration) as made.api:
        yield made
    listener.close()


@pytest.fixture
def now(monkeypatch):
    """The Lease's clock, as a list of one time that tests change."""
    at = [1000.0]
    monkeypatch.setattr(leases, "monotonic", lambda: at[0])
    return at


def a_lease(server, metrics=None):
    return Lease("l", "n", "me", server.api, Failures(metrics or OperatorMetrics()))


RECORD = LeaderElectionRecord("me", str(LEASE_S), AT, AT)


async def test_remaining_time_counts_from_when_the_renewal_was_sent(server, now):
    lease = a_lease(server)
    assert lease.remaining_s() < 0
    assert await lease.create("l", "n", RECORD)
    assert lease.remaining_s() == LEASE_S - SAFETY_S
    now[0] += 3
    assert lease.remaining_s() == LEASE_S - SAFETY_S - 3
    now[0] += LEASE_S
    assert lease.remaining_s() < 0


async def test_a_write_times_out_before_the_lease_expires(server):
    left_s = 3.0
    kube = Kube(server.api, write_time_s=lambda: left_s)
    body = {"metadata": {"name": "x"}}
    await kube.create(CONFIG_MAPS, "n", body)
    assert server.targets == ["/api/v1/namespaces/n/configmaps?timeout=3.000s"]
    await kube.get(CONFIG_MAPS, "n", "x")  # reads have no such limit
    assert server.targets[1:] == ["/api/v1/namespaces/n/configmaps/x"]
    assert kube.may_write
    left_s = MIN_WRITE_S - 0.001
    assert not kube.may_write
    with pytest.raises(Transient, match="another replica may lead"):
        await kube.create(CONFIG_MAPS, "n", body)
    assert len(server.targets) == 2


async def test_an_unanswered_write_ends_at_its_time_out(server):
    server.answer = None
    kube = Kube(server.api, write_time_s=lambda: MIN_WRITE_S)
    with pytest.raises(Transient, match="cannot be reached"):
        await kube.create(CONFIG_MAPS, "n", {"metadata": {"name": "x"}})


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{", json.dumps({"spec": {"renewTime": "noon"}}).encode(), b'{"spec": 1}'],
)
async def test_an_invalid_lease_does_not_end_the_process(server, answer):
    """An invalid answer is retried; a leader that cannot renew the Lease stops leading."""
    metrics = OperatorMetrics()
    lease = a_lease(server, metrics)
    server.answer = answer
    has_read, error = await lease.get("l", "n")
    if not has_read:
        assert error.reason
    assert await lease.update("l", "n", RECORD) in (True, False)
    assert await lease.create("l", "n", RECORD) in (True, False)


@pytest.mark.parametrize(
    ("user", "owner"),
    [
        ({"username": "system:serviceaccount:n:operator", "uid": "u"}, ("operator", "u")),
        ({"username": "system:serviceaccount:other:operator", "uid": "u"}, None),
        ({"username": "admin"}, None),
    ],
)
async def test_the_operators_service_account_owns_the_lease(server, user, owner):
    server.answer = json.dumps({"status": {"userInfo": user}}).encode()
    owners = await a_lease(server)._owners("n")
    assert [(each.name, each.uid) for each in owners] == ([owner] if owner else [])
    assert server.targets == ["/apis/authentication.k8s.io/v1/selfsubjectreviews"]


async def test_an_unexpected_error_is_counted_and_does_not_renew_the_lease(server, now):
    metrics = OperatorMetrics()
    lease = a_lease(server, metrics)
    lease.lease_reference = None  # the client library asserts that it is there
    assert not await lease.update("l", "n", RECORD)
    name = "penstock_operator_unexpected_errors_total"
    assert metrics.registry.get_sample_value(name, {"loop": "lease"}) == 1
    assert lease.remaining_s() < 0
