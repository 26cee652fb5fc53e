"""The ledger of usage, as a gateway reports it and as the command sums it up."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from tests.gateway.support.engine_stub import Engine
from tests.gateway.support.front import Front
from tests.support.http_server import served
from tests.support.tools.redis_process import RedisProcess, redis_process
from typer.testing import CliRunner

from penstock.chart.names import MANAGEMENT_PORT_NAME
from penstock.cli.main import build
from penstock.cli.usage.command import read_report
from penstock.cli.usage.report import UsageSum, sum_usage
from penstock.clients.kubernetes.client import Kube
from penstock.clients.pods.usage_report import DAY_S, PATH, UsageRow, encode, parse
from penstock.core.spec.prices import Prices
from penstock.core.tenants.limits import Usage
from penstock.errors import KubeError
from penstock.gateway.quotas.redis_store import RedisStore
from penstock.gateway.quotas.store import StoreFailed, check_store_url
from penstock.gateway.quotas.store_call import Increments, StoreCall

CHAT = UsageRow(0, "search", "ml/chat", "", 2, 1_000_000, 500_000, 100_000)
TUNED = UsageRow(DAY_S, "search", "ml/chat", "tuned", 1, 10, 0, 5)
CODE = UsageRow(DAY_S, "web", "ml/code", "", 3, 30, 0, 15)
PRICES = {"ml/chat": Prices(Decimal(2), Decimal(1), Decimal(10))}


def test_a_report_is_read_as_it_was_written() -> None:
    assert list(parse(encode([CHAT, TUNED]))) == [CHAT, TUNED]


def test_usage_is_summed_by_tenant_model_and_day() -> None:
    rows = [CHAT, TUNED, CODE]
    by_tenant = sum_usage(rows, PRICES, "tenant")
    assert by_tenant == [
        UsageSum("search", Usage(3, 1_000_010, 100_005, 500_000), Decimal("2.50007")),
        UsageSum("web", Usage(3, 30, 15), None),
    ]
    assert [each.name for each in sum_usage(rows, PRICES, "model")] == [
        "ml/chat", "ml/chat:tuned", "ml/code",
    ]  # fmt: skip
    assert [each.name for each in sum_usage(rows, PRICES, "day")] == ["1970-01-01", "1970-01-02"]


def test_a_model_needs_its_namespace() -> None:
    result = CliRunner(env={"TERMINAL_WIDTH": "200"}).invoke(
        build("usage"), ["usage", "--model", "chat"]
    )
    assert result.exit_code == 2
    text = " ".join(result.output.replace("│", " ").split())
    assert "chat has no namespace: give NAMESPACE/NAME, such as default/chat" in text


async def test_a_gateway_of_an_older_version_is_named() -> None:
    async with served(web.Application()) as address:
        host, port = address.split(":")
        ports = [{"name": MANAGEMENT_PORT_NAME, "containerPort": int(port)}]
        pod = {
            "metadata": {"name": "gateway-0", "namespace": "penstock-system"},
            "spec": {"containers": [{"ports": ports}]},
            "status": {"podIP": host},
        }
        with pytest.raises(
            KubeError, match="gateway-0 has no route for usage: it has an older version"
        ):
            await read_report(cast(Kube, None), pod, date(2026, 11, 30), 1)


async def get(front: Front, **query: Any) -> tuple[int, bytes]:
    async with front.client.get(front.management_url + PATH, params=query) as got:
        return got.status, await got.read()


async def test_without_a_store_there_is_no_ledger(
    start_gateway: Callable[..., Awaitable[Front]],
) -> None:
    status, body = await get(await start_gateway(), from_day=0, days=1)
    assert (status, b"--quota-store" in body) == (404, True)


async def test_a_gateway_reports_the_ledger_of_all(
    start_engine: Callable[..., Awaitable[Engine]],
    start_gateway: Callable[..., Awaitable[Front]],
    redis: RedisProcess,
) -> None:
    front = await start_gateway(await start_engine(), quota_store=RedisStore(redis.url, "gateway"))
    quotas = front.gateway.state.quotas
    for tenant in ("search", "search", "web"):
        quotas.record(tenant, "ml/chat", "", Usage(1, 60, 40, 20))
    day = int(quotas.now_s()) // DAY_S
    rows: list[UsageRow] = []
    async with asyncio.timeout(10):
        while len(rows) < 2:  # the gateway adds to the ledger every half second
            _, body = await get(front, from_day=day - 1, days=3)
            rows = list(parse(body))
            await asyncio.sleep(0.05)
    assert [(each.tenant, each.requests, each.cached_tokens) for each in rows] == [
        ("search", 2, 40),
        ("web", 1, 20),
    ]
    assert (await get(front, from_day=day, days=32))[0] == 400
    assert (await get(front, from_day="x", days=1))[0] == 400
    redis.kill()
    assert (await get(front, from_day=day, days=1))[0] == 503


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://quotas:6379", "redis://quotas:6379/0"),
        ("redis://:secret@quotas:6379", "has a password"),
        ("redis://quotas:6379?password=secret", "has a password"),
    ],
)
def test_a_url_with_a_password_is_refused_without_repeating_it(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        check_store_url(url)
    assert "secret" not in str(refused.value)


async def test_a_password_is_read_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    with redis_process(tmp_path, "correct horse") as server:
        store = RedisStore(server.url, "gateway", secret)
        num_gateways = 0
        async with asyncio.timeout(20):
            while not num_gateways:  # a call has a time limit, which a busy machine misses
                with contextlib.suppress(StoreFailed):
                    num_gateways = (await store.call(StoreCall(Increments(1)))).num_gateways
        assert num_gateways == 1
        await store.close()
