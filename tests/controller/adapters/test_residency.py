"""Lists of adapters, asked of engines over real sockets."""

import asyncio
import json

import pytest

from penstock.clients.pods.engine_adapters import MAX_LISTS, EngineAdapters
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.adapters.residency import Residency
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.core.adapters.replica import Copy
from penstock.core.observed.lora_engine import LoraEngine

HANGING, ANSWERING = "127.0.0.1", "127.0.0.2"


@pytest.fixture
async def port():
    """Port of an engine that hangs at one address and lists a copy at the other one."""

    async def connected(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if writer.get_extra_info("sockname")[0] == ANSWERING:
            body = json.dumps({"data": [{"id": "sql", "parent": "m"}]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(connected, "0.0.0.0", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def pods(namespace, address, count):
    engine = LoraEngine("VLLM", 4)
    return [
        LoraPod(namespace, "chat", f"chat-{number}", address, engine) for number in range(count)
    ]


async def test_hung_engines_of_a_namespace_delay_no_list_of_another(port):
    engines = EngineAdapters()
    residency = Residency(engines, Failures(OperatorMetrics()))
    hung = pods("other", f"{HANGING}:{port}", 2 * MAX_LISTS)
    assert await residency.poll(hung) == {}
    copies = await residency.poll([*hung, *pods("team", f"{ANSWERING}:{port}", 1)])
    assert copies == {("team", "chat-0"): {"sql": Copy("Resident")}}
    await residency.close()
    await engines.close()


class BrokenEngines(EngineAdapters):
    """Raises an error about the engine at one address, for what no check has foreseen."""

    async def list(self, namespace, address, runtime, last=None):
        if address == "broken":
            raise OverflowError("cannot convert float infinity to integer")
        return await super().list(namespace, address, runtime, last)


async def test_an_error_about_one_engine_hides_no_copies_of_another(port):
    engines, metrics = BrokenEngines(), OperatorMetrics()
    residency = Residency(engines, Failures(metrics))
    all_pods = [*pods("other", "broken", 1), *pods("team", f"{ANSWERING}:{port}", 1)]
    for _ in range(2):
        assert await residency.poll(all_pods) == {
            ("team", "chat-0"): {"sql": Copy("Resident")},
        }
    name = "penstock_operator_unexpected_errors_total"
    assert metrics.registry.get_sample_value(name, {"loop": "adapters"}) == 2
    await residency.close()
    await engines.close()
