"""The quickstart: a service is applied, becomes Ready and answers inside and outside of the cluster."""

import asyncio
import json

import yaml
from benchmarks.real_node.access import CLIENT, ask_from, start_client
from benchmarks.real_node.lab import ROOT, Lab
from benchmarks.real_node.stream_answer import stream_answer

from penstock.chart.names import GATEWAY, NAMESPACE
from penstock.clients.machine.clock import monotonic
from penstock.core.spec.service import Object
from penstock.demo.stage import Stage

NAME = "quickstart"
READY_WITHIN_S = 300


async def run(lab: Lab) -> dict[str, object]:
    async with lab.stage_in_namespace(NAME) as stage:
        applied_s = monotonic()
        stage.kubectl("apply", "-f", "-", stdin=json.dumps(service()))
        stage.kubectl(
            "wait", "--for=condition=Ready", f"psvc/{NAME}", f"--timeout={READY_WITHIN_S}s",
            timeout_s=READY_WITHIN_S + 10,
        )  # fmt: skip
        ready_s = monotonic() - applied_s
        start_client(stage)
        figures = {"ready_s": round(ready_s, 1)} | await answers(stage)
        check_commands(stage)
        deleted_s = monotonic()
        stage.kubectl("delete", "psvc", NAME)
        await stage.wait_until_gone(NAME, within_s=90)
        return figures | {"gone_s": round(monotonic() - deleted_s, 1)}


def service() -> Object:
    """Build the service of examples/quickstart.yaml with the demo's model."""
    made: Object = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text())
    made["metadata"]["name"] = NAME
    made["spec"]["model"]["uri"] = "pvc://models/penstock-tiny"
    made["spec"]["engine"]["maxModelLen"] = 1024  # that of this model
    return made


async def answers(stage: Stage) -> dict[str, object]:
    """Stream the same answer by the gateway's address, and by its DNS name in a pod. Returns times."""
    outside = await asyncio.to_thread(stream_answer, stage.cluster.gateway_url, NAME)
    inside = ask_from(stage, CLIENT, f"http://{GATEWAY}.{NAMESPACE}.svc", NAME)
    assert outside["text"] == inside["text"], (outside, inside)
    assert outside["text"], outside
    return {
        "first_token_s": outside["first_token_s"],
        "first_token_in_pod_s": inside["first_token_s"],
    }


def check_commands(stage: Stage) -> None:
    """Check what a user sees of a service that is Ready."""
    columns = stage.kubectl("get", "psvc", NAME, "--no-headers").split()
    assert columns[:5] == [NAME, "True", "Ready", "1", "1"], columns
    described = stage.kubectl("describe", "psvc", NAME)
    assert "Ready" in described, described
    events = stage.kubectl("get", "events", "--field-selector=type=Warning", "--no-headers")
    assert "FailedCreate" not in events, events
