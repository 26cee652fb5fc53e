"""`penstock adapters`: what it shows of adapters with and without the operator's placement."""

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.core.adapters.pods import replica
from typer.testing import CliRunner, Result

from penstock.cli.adapters.report import adapter_report
from penstock.cli.main import build
from penstock.core.adapters.demand import AdapterCounts, AdapterDemand
from penstock.core.adapters.placement_record import AdapterRecord, PlacementRecord
from penstock.core.adapters.replica import Copy
from penstock.core.adapters.resource import adapter_resource
from penstock.core.spec.service import Object
from penstock.errors import Forbidden, NotFound

NOW_S = 1_790_000_000.0


def adapter(name: str, service: str = "chat", **status: Any) -> Object:
    return {
        "metadata": {
            "name": name, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"
        },
        "spec": {
            "serviceRef": {"name": service},
            "model": {"uri": f"pvc://adapters/{name}", "name": f"chat-{name}"},
        },
        "status": status,
    }  # fmt: skip


def condition(kind: str, status: str, message: str) -> Object:
    return {"type": kind, "status": status, "reason": kind, "message": message}


def engine_name(body: Object) -> str:
    return adapter_resource(body).version.engine_name


SQL = adapter(
    "sql",
    loadedReplicas=1, desiredReplicas=1, rank=8, sizeBytes=3 << 19,
    demand={"requestsPerSecond": "0.5"}, lastUsedTime="2026-09-21T00:00:00Z",
    instances=[{"podName": "chat-a", "state": "Loaded"}],
    conditions=[
        condition("Loaded", "True", "1 of 1 copies are loaded"),
        condition("Ready", "True", "requests are answered from memory"),
    ],
)  # fmt: skip
LAW = adapter(
    "law",
    loadedReplicas=0, desiredReplicas=1,
    instances=[{"podName": "chat-b", "state": "Failed", "message": "rank 64 is above 16"}],
    conditions=[condition("Ready", "False", "rank 64 is above 16")],
)  # fmt: skip
OTHER = adapter("poem", "story")
PLACEMENT = PlacementRecord(
    "team/chat",
    NOW_S,
    (
        replica("chat-a", 4, {engine_name(SQL): Copy("Resident", 3), "by-hand": Copy("Evicted")}),
        replica("chat-b", 4),
    ),
    (
        AdapterRecord(
            "law", engine_name(LAW), 1, False, "at least 1 copies", AdapterCounts(), AdapterDemand(),
            {"chat-b": "rank 64 is above 16"}, retry_in_s=40.0,
        ),
        AdapterRecord(
            "sql", engine_name(SQL), 1, True, "3.0 requests in flight, 4.0 for a copy",
            AdapterCounts(arrivals=90, misses=7, in_flight=3, waiting=1),
            AdapterDemand(last_request_s=NOW_S - 5),
        ),
    ),
)  # fmt: skip


@dataclass
class Cluster:
    """API server and operator. A service without a placement cannot be read for lack of rights."""

    bodies: list[Object] = field(default_factory=list)
    placements: dict[str, PlacementRecord] = field(default_factory=dict)

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def list(self, _: object, namespace: str) -> tuple[list[Object], str]:
        assert namespace == "team"
        return self.bodies, "1"

    async def get(self, _: object, namespace: str, name: str) -> Object:
        for body in self.bodies:
            if body["metadata"]["name"] == name:
                return body
        raise NotFound(f"no LoraAdapter {namespace}/{name}")

    async def placement(self, *args: Any) -> PlacementRecord:
        service: str = args[-1]
        if service not in self.placements:
            raise Forbidden("pods/proxy is forbidden")
        return self.placements[service]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster([SQL, LAW, OTHER], {"team/chat": PLACEMENT})

    async def connect(**_: object) -> Cluster:
        return cluster

    monkeypatch.setattr("penstock.cli.adapters.command.connect", connect)
    monkeypatch.setattr("penstock.cli.adapters.command.placement", cluster.placement)
    monkeypatch.setattr("penstock.cli.adapters.command.unix_time", lambda: NOW_S)
    return cluster


def adapters(*words: str) -> Result:
    arguments = ["adapters", "-n", "team", *words]
    return CliRunner().invoke(build("adapters"), arguments, env={"COLUMNS": None})


def cells(text: str, name: str) -> list[str]:
    """Cells of the adapter's or pod's first line, in the table of all adapters or of one."""
    (line,) = (each for each in text.splitlines() if re.match(rf"│? {name} ", each))
    if line.startswith("│"):
        return [cell.strip() for cell in line.strip("│").split("│")]
    return re.split(r" {2,}", line.strip())


@pytest.mark.usefixtures("cluster")
def test_the_table() -> None:
    done = adapters()
    assert done.exit_code == 0, done.output
    assert cells(done.output, "sql") == [
        "sql", "chat", "1/1", "0.5", "7", "5s", "3.0 requests in flight, 4.0 for a copy",
    ]  # fmt: skip
    assert cells(done.output, "law")[-1] == "rank 64 is above 16; next load in 40 s"
    assert cells(done.output, "poem")[-1] == "the operator has not seen it yet"
    assert done.stderr == "without the placement of team/story: pods/proxy is forbidden\n"


@pytest.mark.usefixtures("cluster")
def test_one_adapter() -> None:
    done = adapters("sql")
    assert done.exit_code == 0, done.output
    head, version, state, demand, *_ = done.output.splitlines()
    assert head == "sql: chat-sql of chat, pvc://adapters/sql"
    assert version.endswith(", rank 8, 1.5 MiB")
    assert state == (
        "ready, 1 of 1 wanted copies are loaded: 3.0 requests in flight, 4.0 for a copy"
    )
    assert demand == (
        "0.5 requests/s, 3 in flight, 1 waiting, 7 of 90 requests found no copy in memory, "
        "last used 5s ago"
    )
    assert cells(done.output, "chat-a") == ["chat-a", "Loaded", "3", "1 of 4", ""]
    assert cells(done.output, "chat-b") == ["chat-b", "none", "0", "0 of 4", ""]


@pytest.mark.usefixtures("cluster")
def test_the_adapters_of_one_service_as_json() -> None:
    done = adapters("--service", "chat", "-o", "json")
    sql, law = json.loads(done.output)
    assert (sql["requestsPerSecond"], sql["misses"], sql["ready"]) == (0.5, 7, True)
    assert sql["lastUsedTime"] == "2026-09-21T14:13:15Z"
    assert law["pods"][1] == {
        "podName": "chat-b", "state": "Failed", "requests": 0, "usedSlots": 0, "slots": 4,
        "message": "rank 64 is above 16",
    }  # fmt: skip
    assert json.loads(adapters("sql", "-o", "json").output) == sql


def test_without_the_placement_the_status_is_shown(cluster: Cluster) -> None:
    cluster.placements.clear()
    done = adapters("sql")
    assert done.exit_code == 0
    assert "without the placement of team/chat: pods/proxy is forbidden" in done.stderr
    assert "1 of 1 wanted copies are loaded: requests are answered from memory" in done.output
    assert cells(done.output, "chat-a") == ["chat-a", "Loaded", "", "", ""]


def test_what_is_not_there(cluster: Cluster) -> None:
    assert adapters("none").exit_code == 1
    assert adapters("sql", "--service", "story").exit_code == 1
    cluster.bodies.clear()
    done = adapters("--service", "chat")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "there are no LoraAdapters of chat in namespace team\n"
    assert json.loads(adapters("-o", "json").output) == []


def test_the_table_fits_into_a_terminal(cluster: Cluster) -> None:
    """No cell is cut, and no name of an adapter goes on in a further line."""
    names = ("support-summaries", "legal-translation", "sql")
    cluster.bodies = [
        adapter(name, "customer-service", loadedReplicas=2, desiredReplicas=3) for name in names
    ]
    done = CliRunner().invoke(build("adapters"), ["adapters", "-n", "team"], env={"COLUMNS": "80"})
    table = done.stdout.splitlines()
    assert max(map(len, table)) <= 80
    assert "…" not in done.stdout
    for name in names:
        assert cells(done.stdout, name)[2] == "2/3"


def test_two_versions_with_their_shares() -> None:
    revision = adapter_resource(SQL).version.revision
    old = {"revision": "00000000", "percent": 70}
    body = adapter(
        "sql",
        traffic=[old, {"revision": revision, "percent": 30}],
        instances=[{"podName": "chat-a", "state": "Loaded", "revision": "00000000"}],
    )
    report = adapter_report(body, None)
    assert report.versions == {revision: 30, "00000000": 70}
    assert [pod.state for pod in report.pods] == ["Loaded 00000000"]


def test_the_serving_version_is_shown_while_the_spec_asks_for_a_rejected_one() -> None:
    """The spec has another URI, whose version was rejected: copies and counts are of the old one."""
    uri = "pvc://adapters/sql-0"
    old = replace(adapter_resource(SQL).version, uri=uri)
    entry = {"revision": old.revision, "uri": uri, "startTime": "2026-09-20T00:00:00Z"}
    body = adapter(
        "sql",
        stableRevision=old.revision, versions=[entry],
        traffic=[{"revision": old.revision, "uri": uri, "percent": 100}],
        instances=[{"podName": "chat-a", "state": "Loaded"}],
        conditions=[condition("Ready", "True", "requests are answered from memory")],
    )  # fmt: skip
    record = AdapterRecord(
        "sql",
        old.engine_name,
        1,
        True,
        "a minimum of 1",
        AdapterCounts(arrivals=9),
        AdapterDemand(),
    )
    chat_a = replica("chat-a", 4, {old.engine_name: Copy("Resident", requests=2)})
    report = adapter_report(body, PlacementRecord("team/chat", NOW_S, (chat_a,), (record,)))
    assert (report.uri, report.versions) == (uri, {old.revision: 100})
    assert report.counts == AdapterCounts(arrivals=9)
    assert report.reason == "a minimum of 1"
    assert [(pod.state, pod.requests) for pod in report.pods] == [("Loaded", 2)]


def test_the_age_of_the_last_use(cluster: Cluster) -> None:
    for age_s, shown in ((90, "90s"), (600, "10m"), (9000, "2h"), (400_000, "5d")):
        record = AdapterRecord(
            "sql", engine_name(SQL), 1, True, "", AdapterCounts(),
            AdapterDemand(last_request_s=NOW_S - age_s),
        )  # fmt: skip
        cluster.bodies = [adapter("sql")]
        cluster.placements = {"team/chat": PlacementRecord("team/chat", NOW_S, (), (record,))}
        assert cells(adapters().output, "sql")[5] == shown
