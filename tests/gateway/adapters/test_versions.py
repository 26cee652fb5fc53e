"""Two versions of an adapter behind a gateway: the split of requests, and counts for the canary judge."""

import asyncio
import contextlib
from collections import Counter

import pytest
from tests.gateway.adapters.adapter_engine import AdapterEngine, adapter, ask
from tests.support.gateway_snapshots import build

from penstock.core.adapters.adapter import AdapterVersion
from penstock.gateway.telemetry import access_log

OLD, NEW = AdapterVersion("sql", "pvc://a/1"), AdapterVersion("sql", "pvc://a/2")
KEY = "default/lora/sql"


def rolling(percent: int, phase: str = "Judging") -> dict:
    """A LoraAdapter whose new version gets this share of the requests."""
    shares = [(OLD, 100 - percent), (NEW, percent)]
    traffic = [
        {"revision": version.revision, "uri": version.uri, "percent": share}
        for version, share in shares
        if share
    ]
    status = {"traffic": traffic, "trafficGeneration": 7, "rollout": {"phase": phase}}
    return adapter("sql", uri=NEW.uri) | {"status": status}


def read(body: dict):
    (found,) = build([], [], [], [body]).adapters
    return found


def test_the_status_and_not_the_spec_says_which_version_answers() -> None:
    assert read(adapter("sql", uri=NEW.uri)).version == NEW
    settled = read(rolling(0, "Rejected"))
    assert (settled.version, settled.is_mixed, settled.generation) == (OLD, False, 0)
    promoted = read(rolling(100, "Promoting"))
    assert (promoted.version, promoted.is_mixed, promoted.generation) == (NEW, False, 7)
    mixed = read(rolling(30))
    assert mixed.engine_names == (OLD.engine_name, NEW.engine_name)
    assert (mixed.is_mixed, mixed.generation) == (True, 7)


def test_shares_decide_and_a_key_stays_with_one_version() -> None:
    mixed = read(rolling(30))
    drawn = Counter(mixed.choose(n / 1000, None).version for n in range(1000))
    assert drawn == {OLD: 700, NEW: 300}
    keyed = Counter(mixed.choose(0.0, f"user-{n}".encode()).version for n in range(2000))
    assert 0.25 < keyed[NEW] / 2000 < 0.35
    more = read(rolling(45))
    for n in range(200):
        key = f"user-{n}".encode()
        assert mixed.choose(0.1, key).version == mixed.choose(0.9, key).version
        if mixed.choose(0.0, key).version == NEW:
            assert more.choose(0.0, key).version == NEW


async def test_requests_are_split_and_counted_by_version(pool) -> None:
    engine = AdapterEngine(OLD.engine_name, NEW.engine_name)
    front = await pool(engine, adapters=(rolling(40),))
    for _ in range(100):
        status, _ = await ask(front, "sql")
        assert status == 200
    served = Counter(engine.served)
    assert 15 < served[NEW.engine_name] < 65
    stats = front.gateway.state.stats
    report = stats.report(front.snapshots.current)
    arms = report.arms[KEY]
    assert {name: arm.requests for name, arm in arms.items()} == served
    assert sum(arm.errors for arm in arms.values()) == 0
    assert report.obeys[KEY] == 7
    assert {n: c.arrivals for n, c in report.adapters["default/chat"].items()} == served


class Failing(AdapterEngine):
    """An engine that fails all requests for some models. failed: these models, once for each request."""

    def __init__(self, *resident, models, status):
        super().__init__(*resident)
        self.models, self.status, self.failed = models, status, []

    async def _complete(self, request, model):
        if model in self.models:
            self.failed.append(model)
            await request.whole(b'{"error": {"message": "broken"}}', self.status)
        else:
            await super()._complete(request, model)


BOTH = (OLD.engine_name, NEW.engine_name)


# Penstock's engine answers 503 if the output of a model is NaN.
STATUSES = ["500 Internal Server Error", "503 Service Unavailable"]


@pytest.mark.parametrize("num_engines", [1, 2])
@pytest.mark.parametrize("status", STATUSES)
async def test_a_version_that_fails_is_found_with_one_retry(
    pool, status: str, num_engines: int
) -> None:
    new = [NEW.engine_name]
    engines = [Failing(*BOTH, models=new, status=status) for _ in range(num_engines)]
    front = await pool(*engines, adapters=(rolling(50),), max_attempts=2)
    assert Counter([(await ask(front, "sql"))[0] for _ in range(20)]) == {200: 20}
    num_failed = sum(len(engine.failed) for engine in engines)
    arms = front.gateway.state.stats.report(front.snapshots.current).arms[KEY]
    assert arms[NEW.engine_name].errors == num_failed > 0


@pytest.mark.parametrize("num_engines", [1, 2])
@pytest.mark.parametrize("status", STATUSES)
async def test_a_version_that_fails_what_the_other_one_answers_has_the_errors(
    pool, status: str, num_engines: int
) -> None:
    new = [NEW.engine_name]
    engines = [Failing(*BOTH, models=new, status=status) for _ in range(num_engines)]
    front = await pool(*engines, adapters=(rolling(50),))
    assert Counter([(await ask(front, "sql"))[0] for _ in range(20)]) == {200: 20}
    num_failed = sum(len(engine.failed) for engine in engines) // (1 if status < "503" else 2)
    arms = front.gateway.state.stats.report(front.snapshots.current).arms[KEY]
    assert (arms[OLD.engine_name].requests, arms[OLD.engine_name].errors) == (20, 0)
    assert arms[NEW.engine_name].errors == arms[NEW.engine_name].requests == num_failed > 0


@pytest.mark.parametrize("num_engines", [1, 2])
@pytest.mark.parametrize("status", STATUSES)
async def test_a_request_that_fails_with_both_versions_is_an_error_of_none(
    pool, status: str, num_engines: int
) -> None:
    engines = [Failing(*BOTH, models=BOTH, status=status) for _ in range(num_engines)]
    front = await pool(*engines, adapters=(rolling(50),), wait_for_endpoint_s=1)
    assert (await ask(front, "sql"))[0] == int(status[:3])
    assert {name for engine in engines for name in engine.failed} == set(BOTH)
    arms = front.gateway.state.stats.report(front.snapshots.current).arms[KEY]
    assert {name: (arm.requests, arm.errors) for name, arm in arms.items()} == {
        OLD.engine_name: (0, 0),
        NEW.engine_name: (0, 0),
    }


async def test_a_failure_that_the_other_version_could_not_check_is_an_error_of_none(pool) -> None:
    new = [NEW.engine_name]
    engine = Failing(*new, models=new, status="500 Internal Server Error")
    engine.errors[OLD.engine_name] = "400 Bad Request", "pickle file"
    front = await pool(engine, adapters=(rolling(50),))
    while not engine.failed:
        await ask(front, "sql")
    arms = front.gateway.state.stats.report(front.snapshots.current).arms[KEY]
    assert (arms[NEW.engine_name].requests, arms[NEW.engine_name].errors) == (0, 0)


async def test_an_unloaded_adapter_is_loaded_for_the_next_request_where_retries_are_off(
    pool,
) -> None:
    class Evicting(AdapterEngine):
        async def _complete(self, request, model):
            if not self.calls:  # nobody has loaded it again
                self.copies.clear()
            await super()._complete(request, model)

    engine = Evicting(NEW.engine_name)
    front = await pool(engine, adapters=(rolling(100, "Stable"),), max_attempts=1)
    status, body = await ask(front, "sql")
    assert (status, body["error"]["message"]) == (
        503,
        "the engines that were tried have unloaded the adapter",
    )
    assert (await ask(front, "sql"))[0] == 200


@pytest.mark.parametrize(
    ("settings", "num_held"),
    [
        ({"max_attempts": 1}, 0),
        ({"min_retries": 1, "retry_budget_fraction": 0.0, "wait_for_endpoint_s": 0.01}, 1),
    ],
    ids=["no retries", "retry budget spent"],
)
async def test_a_failure_without_a_retry_is_counted_for_its_version(
    pool, caplog, settings, num_held
) -> None:
    caplog.set_level("INFO", access_log.__name__)
    engine = Failing(*BOTH, models=[NEW.engine_name], status="500 Internal Server Error")
    front = await pool(engine, adapters=(rolling(50),), **settings)
    with contextlib.ExitStack() as held:
        for _ in range(num_held):
            held.enter_context(front.gateway.state.retry_budget.hold("default/chat"))
        statuses = [(await ask(front, "sql"))[0] for _ in range(20)]
    await front.idle()
    num_failed = statuses.count(500)
    assert num_failed == len(engine.failed) > 0
    report = front.gateway.state.stats.report(front.snapshots.current)
    # A gateway with retries counts a failure that no retry has checked for no version.
    num_errors = num_failed if "max_attempts" in settings else 0
    assert [report.arms[KEY][name].errors for name in BOTH] == [0, num_errors]
    counts = report.adapters["default/chat"]
    assert {name: each.failed for name, each in counts.items() if each.failed} == {
        NEW.engine_name: num_failed
    }
    lines = [record.fields for record in caplog.records if record.name == access_log.__name__]
    assert Counter(line["adapter"] for line in lines if line["status"] == 500) == {
        NEW.engine_name: num_failed
    }


async def test_a_refused_load_is_an_error_of_its_version(pool) -> None:
    engine = AdapterEngine(OLD.engine_name)
    engine.errors[NEW.engine_name] = ("400 Bad Request", "pickle file")
    front = await pool(engine, adapters=(rolling(50),))
    results = await asyncio.gather(*(ask(front, "sql") for _ in range(40)))
    statuses = Counter(status for status, _ in results)
    assert statuses.keys() == {200, 424}
    arms = front.gateway.state.stats.report(front.snapshots.current).arms[KEY]
    assert (arms[OLD.engine_name].errors, arms[NEW.engine_name].errors) == (0, statuses[424])


async def test_a_settled_adapter_has_no_canary_statistics(pool) -> None:
    engine = AdapterEngine(NEW.engine_name)
    front = await pool(engine, adapters=(rolling(100, "Stable"),))
    assert (await ask(front, "sql"))[0] == 200
    report = front.gateway.state.stats.report(front.snapshots.current)
    assert KEY not in report.arms
    assert KEY not in report.obeys
