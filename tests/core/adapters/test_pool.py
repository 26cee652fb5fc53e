"""Choice of the pool that serves an adapter, and names of dedicated pools."""

from dataclasses import replace

import pytest

from penstock.core.adapters.dedicated import adapter_of, dedicated_name, is_pool_of
from penstock.core.adapters.pool import (
    PoolBounds,
    PoolInputs,
    PoolStatus,
    PoolStep,
    bounds_of,
    step_pool,
)

NAME = "chat-sql"
EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z"
SHARED = PoolStatus("Shared", NAME, 1, EARLIER)
DEDICATED = PoolStatus("Dedicated", NAME, 2, EARLIER)
TO_DEDICATED = PoolInputs("Dedicated", "chat", NAME, has_service=True, now=NOW)
TO_SHARED = replace(TO_DEDICATED, wanted="Shared")


def outcome(step: PoolStep) -> tuple[str, str, bool, str | None]:
    """The pool that serves, why, whether the dedicated one is kept, and the one that is left."""
    return step.state.serving, step.reason, step.keeps_service, step.leaving


@pytest.mark.parametrize(
    ("state", "inputs", "expected"),
    [
        # A dedicated pool is created, starts and serves; then the shared one loses its copies.
        (PoolStatus(), replace(TO_DEDICATED, has_service=False),
         ("Shared", "EnginesStarting", True, None)),
        (SHARED, TO_DEDICATED, ("Shared", "EnginesStarting", True, None)),
        (SHARED, replace(TO_DEDICATED, num_dedicated=1), ("Dedicated", "Serving", True, "Shared")),
        (SHARED, replace(TO_DEDICATED, num_dedicated=2, needed=3),
         ("Shared", "EnginesStarting", True, None)),
        (SHARED, replace(TO_DEDICATED, num_dedicated=1, is_rolling=True),
         ("Shared", "VersionRollout", True, None)),
        (DEDICATED, replace(TO_DEDICATED, has_traffic_moved=False), ("Dedicated", "Serving", True, "Shared")),
        (DEDICATED, TO_DEDICATED, ("Dedicated", "Serving", True, None)),
        # Its engines are gone: as with any service, requests wait for them.
        (DEDICATED, replace(TO_DEDICATED, num_dedicated=0), ("Dedicated", "Serving", True, None)),
        # Somebody deleted it.
        (DEDICATED, replace(TO_DEDICATED, has_service=False),
         ("Shared", "EnginesStarting", True, "Dedicated")),
        (SHARED, replace(TO_DEDICATED, has_service=False, conflict="taken"),
         ("Shared", "ServiceNameInUse", True, None)),
        (SHARED, replace(TO_DEDICATED, has_service=False, refusal="quota"),
         ("Shared", "ServiceRefused", True, None)),
        (DEDICATED, replace(TO_DEDICATED, refusal="policy"),
         ("Dedicated", "ServiceRefused", True, None)),
        # The present spec of the service is not proven: no new pool gets it.
        (SHARED, replace(TO_DEDICATED, has_service=False, parent_not_ready="judged"),
         ("Shared", "ServiceRollout", True, None)),
        (SHARED, replace(TO_DEDICATED, parent_not_ready="judged"), ("Shared", "EnginesStarting", True, None)),
        # Back: a copy in the shared pool, requests, and then the pool is deleted.
        (DEDICATED, TO_SHARED, ("Dedicated", "CopyMissing", True, None)),
        (DEDICATED, replace(TO_SHARED, num_shared=1, is_rolling=True),
         ("Dedicated", "VersionRollout", True, None)),
        (DEDICATED, replace(TO_SHARED, num_shared=1), ("Shared", "Serving", True, "Dedicated")),
        (PoolStatus("Shared", NAME, 3), replace(TO_SHARED, has_traffic_moved=False),
         ("Shared", "Serving", True, "Dedicated")),
        (PoolStatus("Shared", NAME, 3), TO_SHARED, ("Shared", "Serving", False, None)),
        # The service takes the adapter no more: no copy is to be expected, and no end of a rollout.
        (DEDICATED, replace(TO_SHARED, is_accepted=False, is_rolling=True),
         ("Shared", "Serving", True, "Dedicated")),
        # The user changed his mind before anything served.
        (SHARED, TO_SHARED, ("Shared", "Serving", False, None)),
        # The service was deleted.
        (DEDICATED, replace(TO_DEDICATED, has_parent=False),
         ("Shared", "EnginesStarting", False, "Dedicated")),
    ],
)  # fmt: skip
def test_steps(
    state: PoolStatus, inputs: PoolInputs, expected: tuple[str, str, bool, str | None]
) -> None:
    step = step_pool(state, inputs)
    assert outcome(step) == expected
    assert step.state.generation == max(state.generation, 1) + (step.state.serving != state.serving)
    assert step.state.service == (NAME if step.keeps_service else "")


def test_the_time_is_that_of_the_last_change() -> None:
    assert step_pool(SHARED, TO_DEDICATED).state.change_time == EARLIER
    assert step_pool(SHARED, replace(TO_DEDICATED, num_dedicated=1)).state.change_time == NOW
    for unknown in ("", "2026-01-01T00:00:31Z"):
        state = replace(DEDICATED, change_time=unknown)
        assert step_pool(state, TO_DEDICATED).state.change_time == NOW


def test_a_settled_pool_stays_as_it_is() -> None:
    settled = PoolStatus("Shared", "", 3, EARLIER)
    for state, inputs in ((DEDICATED, TO_DEDICATED), (settled, TO_SHARED)):
        assert step_pool(state, replace(inputs, has_service=bool(state.service))).state == state


def test_messages_say_which_engines_serve() -> None:
    waiting = step_pool(SHARED, replace(TO_DEDICATED, num_dedicated=1, needed=2))
    assert waiting.message == (
        "1 of 2 engines of chat-sql have the adapter in memory; the engines of chat serve the adapter "
        "until then"
    )
    pending = step_pool(SHARED, replace(TO_DEDICATED, obstacle="Unschedulable: no GPU"))
    assert (pending.reason, pending.message) == (
        "EnginesStarting",
        "0 of 1 engines of chat-sql have the adapter in memory (Unschedulable: no GPU); the engines of chat "
        "serve the adapter until then",
    )
    stalled = step_pool(SHARED, replace(TO_DEDICATED, obstacle="no GPU", stalled="no progress"))
    assert (stalled.reason, stalled.message) == (
        "ServiceStalled",
        "0 of 1 engines of chat-sql have the adapter in memory; chat-sql is stalled: no progress; the "
        "engines of chat serve the adapter until then",
    )
    assert step_pool(DEDICATED, TO_DEDICATED).message == "the engines of chat-sql serve the adapter"


def test_copies_are_in_the_pools_that_serve_or_are_to_serve_or_are_being_left() -> None:
    leaving = step_pool(DEDICATED, replace(TO_DEDICATED, has_traffic_moved=False))
    settled = step_pool(DEDICATED, TO_DEDICATED)
    assert [leaving.has_copies_in(pool) for pool in ("Shared", "Dedicated")] == [True, True]
    assert [settled.has_copies_in(pool) for pool in ("Shared", "Dedicated")] == [False, True]


@pytest.mark.parametrize(
    ("dedicated", "bounds"),
    [
        ({}, PoolBounds(1, 1)),
        ({"minReplicas": 2}, PoolBounds(2, 2)),
        ({"maxReplicas": 4}, PoolBounds(1, 4)),
        ({"minReplicas": 2, "maxReplicas": 4}, PoolBounds(2, 4)),
    ],
)
def test_bounds(dedicated: dict[str, int], bounds: PoolBounds) -> None:
    assert bounds_of(dedicated) == bounds


def test_the_status_says_which_service_serves() -> None:
    assert PoolStatus.of({}).serving_service("chat") == "chat"
    status = {"pool": "Dedicated", "dedicatedService": NAME, "poolGeneration": 2}
    status["poolChangeTime"] = EARLIER
    assert PoolStatus.of(status) == DEDICATED
    assert DEDICATED.serving_service("chat") == NAME
    assert PoolStatus.of(status | {"pool": "Shared"}).serving_service("chat") == "chat"
    assert PoolStatus.of({"pool": "Dedicated"}) == PoolStatus()


def test_names_of_pools() -> None:
    assert dedicated_name("chat", "sql") == NAME
    assert dedicated_name("c" * 20, "a" * 19) == f"{'c' * 20}-{'a' * 19}"
    long = dedicated_name("c" * 20, "a" * 20)
    assert len(long) == 40
    assert long.startswith("c" * 20 + "-a")
    assert long != dedicated_name("c" * 20, "a" * 21)
    assert dedicated_name("chat", "sql.v3") != dedicated_name("chat", "sql-v3")
    assert "." not in dedicated_name("chat", "sql.v3")
    assert len(dedicated_name("c" * 30, "-" + "a" * 40)) <= 40


def test_pools_are_recognized_by_their_owner() -> None:
    owner = {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "LoraAdapter",
        "name": "sql",
        "uid": "1",
        "controller": True,
    }
    pool = {"metadata": {"ownerReferences": [{"kind": "Other", "uid": "9"}, owner]}}
    assert adapter_of(pool) == "sql"
    assert is_pool_of(pool, "1")
    assert not is_pool_of(pool, "2")
    for other in (
        [],
        [owner | {"controller": False}],
        [owner | {"apiVersion": "apps/v1"}],
        [owner | {"kind": "Deployment"}],
    ):
        assert adapter_of({"metadata": {"ownerReferences": other}}) == ""
    assert adapter_of({"metadata": {}}) == ""
