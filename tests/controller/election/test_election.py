"""The leader election runs beside the operator's event loop, with a server of Leases in another thread."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes.aio import client

from penstock.controller.election import election
from penstock.controller.election.election import LeadershipLost, join_election
from penstock.controller.election.lease import LEASE_S, SAFETY_S
from penstock.controller.http import server as http_server
from penstock.controller.http.server import MAX_LAG_S, OperatorEndpoints
from penstock.controller.process.settings import Settings

WITHIN_S = 30.0
SETTINGS = Settings("me", "penstock", "n", "127.0.0.1", 0)


class Leases(BaseHTTPRequestHandler):
    """API server with one Lease. renewed: set at each update."""

    protocol_version = "HTTP/1.1"
    lease = None

    def do_GET(self):
        lease = self.server.lease
        self.answer(200, lease) if lease else self.answer(404, {"code": 404})

    def do_POST(self):
        body = self.body()
        if self.path.endswith("/leases"):
            self.server.lease = body
        self.answer(201, body)

    def do_PUT(self):
        self.server.lease = self.body()
        self.answer(200, self.server.lease)
        self.server.renewed.set()

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["content-length"])))

    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(election, "RETRY_S", 1)
    monkeypatch.setattr(election, "RENEW_DEADLINE_S", 1.5)
    made = ThreadingHTTPServer(("127.0.0.1", 0), Leases)
    made.daemon_threads = True
    made.lease, made.renewed = None, threading.Event()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def configuration(server):
    made = client.Configuration()
    made.host = f"http://127.0.0.1:{server.server_port}"
    return made


async def test_a_busy_event_loop_does_not_lose_the_lease(server):
    async with join_election(configuration(server), SETTINGS, OperatorEndpoints()) as joined:
        campaign = asyncio.create_task(joined.campaign())
        await joined.elected.wait()
        for _ in range(2):
            server.renewed.clear()
            assert server.renewed.wait(WITHIN_S)  # blocks the event loop
        assert 0 < joined.remaining_s() <= LEASE_S - SAFETY_S
        assert not campaign.done()
        campaign.cancel()
    assert server.lease["spec"].get("holderIdentity") is None


async def test_a_process_whose_event_loop_is_stuck_stops_leading(server, monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr(http_server, "monotonic", lambda: now_s[0])
    async with join_election(configuration(server), SETTINGS, OperatorEndpoints()) as joined:
        campaign = asyncio.create_task(joined.campaign())
        await joined.elected.wait()
        now_s[0] += MAX_LAG_S
        with pytest.raises(LeadershipLost, match="could not be renewed"):
            await campaign
    assert server.lease["spec"].get("holderIdentity") is None


async def test_an_unexpected_error_of_the_election_ends_the_campaign(server, monkeypatch):
    def fail():
        raise RuntimeError("unexpected")

    judged = OperatorEndpoints()
    monkeypatch.setattr(judged, "is_loop_running", fail)
    async with join_election(configuration(server), SETTINGS, judged) as joined:
        with pytest.raises(RuntimeError, match="unexpected"):
            await joined.campaign()
    assert server.lease is None
