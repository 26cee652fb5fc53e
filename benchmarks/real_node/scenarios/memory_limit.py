"""An engine at its memory limit is killed by the kernel and starts again, and nothing else is harmed."""

import asyncio
import json

from benchmarks.real_node.lab import Lab
from benchmarks.real_node.two_engines import (
    READY_S,
    check_outcomes,
    condition_with,
    engines,
    name_of,
    requests,
    restarts,
    start,
    watched,
)

from penstock.demo.kubectl import KubectlError
from penstock.demo.stage import View, poll_until

NAME = "memory-limit"
# Processes beside the engine that are each half its size: the kernel kills the largest, the engine.
FILL = """
import os, re, time
kib = int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/1/status").read())[1])
while True:
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20)) * (kib >> 11)
        time.sleep(60)
    time.sleep(0.3)
"""
# Memory of the pod's own that outlives its containers: an engine has no room at any start. The program ends
# with its container, so it runs again until there is enough.
HOLD = """
import sys
with open("/held/fill", "ab") as file:
    while file.tell() < int(sys.argv[1]) << 20:
        file.write(bytes(1 << 20))
        file.flush()
"""
HELD_MIB = 900
HELD = {
    "volumes": [{"name": "held", "emptyDir": {"medium": "Memory"}}],
    "containers": [{"name": "engine", "volumeMounts": [{"name": "held", "mountPath": "/held"}]}],
}


async def run(lab: Lab) -> dict[str, object]:
    async with lab.namespace("memory") as namespace:
        await start(lab, NAME, namespace, template={"spec": HELD})
        before = restarts(lab, watched(namespace))
        victim, other = map(name_of, engines(lab, NAME, namespace))
        async with requests(lab, NAME) as load:
            filling = asyncio.create_task(asyncio.to_thread(_exec, lab, namespace, victim, FILL))
            seen = await condition_with(lab, NAME, namespace, "WorkloadReady", "OOMKilled")
            await filling
            recovered_s = await lab.stage.wait_for_engines(
                NAME, 2, within_s=READY_S, namespace=namespace
            )
        figures = check_outcomes(load, may_cut=True)
        _check_victim(lab, namespace, victim)
        after = restarts(lab, watched(namespace))
        harmed = {uid: after[uid] - n for uid, n in before.items() if after.get(uid, n) != n}
        assert list(harmed.values()) == [1], f"containers restarted: {harmed}"
        await _check_event(lab, namespace)
        looping = await _kill_at_each_start(lab, namespace, other)
        return figures | {
            "message": seen["message"],
            "ready_again_s": round(recovered_s, 1),
            "message_at_each_start": looping,
        }


def _exec(lab: Lab, namespace: str, pod: str, program: str, *arguments: str) -> None:
    """Run a program in an engine's container, which may end with it."""
    try:
        lab.kubectl(
            "exec", "-n", namespace, pod, "-c", "engine", "--", "python", "-c", program, *arguments
        )
    except KubectlError as error:
        print(f"exec in {pod}: {error}")


def _check_victim(lab: Lab, namespace: str, victim: str) -> None:
    pod = json.loads(lab.kubectl("get", "pod", "-n", namespace, victim, "-o", "json"))
    (container,) = pod["status"]["containerStatuses"]
    ended = container["lastState"].get("terminated", {})
    assert ended.get("reason") == "OOMKilled", f"the engine ended by {ended}"


async def _check_event(lab: Lab, namespace: str) -> None:
    """Wait for the service's Event. Raises TimeoutError."""

    async def is_there() -> bool:
        events = json.loads(lab.kubectl("get", "events", "-n", namespace, "-o", "json"))["items"]
        return any(
            event["involvedObject"]["kind"] == "InferenceService"
            and (event["type"], event["reason"]) == ("Warning", "OOMKilled")
            for event in events
        )

    await poll_until(is_there, within_s=15, what="the Event OOMKilled")


async def _kill_at_each_start(lab: Lab, namespace: str, pod: str) -> str:
    """Leave an engine too little memory to start. Returns the message once it was killed twice."""

    async def hold() -> None:
        while True:
            await asyncio.to_thread(_exec, lab, namespace, pod, HOLD, str(HELD_MIB))
            await asyncio.sleep(1)

    def is_killed_twice(view: View) -> bool:
        return any(each.restarts >= 2 and not each.is_ready for each in view.pods)

    holding = asyncio.create_task(hold())
    try:
        await lab.stage.wait_until(
            is_killed_twice, NAME, within_s=READY_S, what="an engine is killed at its starts",
            namespace=namespace,
        )  # fmt: skip
    finally:
        holding.cancel()
    seen = await condition_with(lab, NAME, namespace, "WorkloadReady", "OOMKilled")
    ready = (await lab.stage.view(NAME, namespace)).condition("Ready")
    assert ready["status"] == "True", f"the other engine does not answer: {ready}"
    return str(seen["message"])
