"""Pods that end, are stopped, or are not supported, under the real control plane."""

import asyncio
import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import CONFIG_MAPS, EVENTS, PODS, SECRETS
from penstock.demo.kubectl import Kubectl, KubectlError
from penstock.demo.stage import poll_until
from penstock.local import processes
from penstock.local.binaries import ensure_binaries
from penstock.local.cluster import Cluster
from penstock.local.node.volumes import MountError, Volumes

pytestmark = pytest.mark.cluster


def pod(name: str, command: list[str], *, main: Object | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "none", "command": command, **(main or {})}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(ensure_binaries(lambda _: None)["kubectl"], cluster.kubeconfig)


async def reached(kube: Kube, namespace: str, name: str, check: Callable[[Object], bool]) -> Object:
    """Wait until `check` holds for the pod's status, and return the pod."""
    found: Object = {}

    async def holds() -> bool:
        found.update(await kube.get(PODS, namespace, name))
        return check(found.get("status", {}))

    await poll_until(holds, within_s=30, what=f"{name}: {found.get('status')}")
    return found


def phase(wanted: str) -> Callable[[Object], bool]:
    return lambda status: bool(status.get("phase") == wanted)


async def messages(kube: Kube, namespace: str, reason: str) -> list[str]:
    events, _ = await kube.list(EVENTS, namespace)
    return [event["message"] for event in events if event["reason"] == reason]


async def ended(kube: Kube, namespace: str, name: str) -> str:
    """Return the termination message of the pod's container."""
    found = await reached(kube, namespace, name, phase("Succeeded"))
    terminated = found["status"]["containerStatuses"][0]["state"]["terminated"]
    return str(terminated.get("message", ""))


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(900)"]
subprocess.Popen(child, start_new_session=True)
print("up", flush=True)
time.sleep(900)
"""


@pytest.mark.parametrize(
    ("again", "grace_s"), [(["--force", "--grace-period=0"], 0), (["--grace-period=1"], 1)]
)
async def test_a_shorter_grace_period_replaces_a_longer_one(
    again: list[str], grace_s: int, kube: Kube, namespace: str, kubectl: Kubectl
) -> None:
    """Holds for a terminating pod whose hook and process are slow."""
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "500"]}}}} if grace_s else {}
    command = ["python", "-c", STUBBORN]
    body = pod("stubborn", command, main=hook, terminationGracePeriodSeconds=600)
    uid = (await kube.create(PODS, namespace, body))["metadata"]["uid"]

    async def runs() -> bool:
        return len(processes.find_in_pod(uid)) == 2

    await poll_until(runs, within_s=20, what="two processes")
    kubectl("delete", "pod", "stubborn", "-n", namespace, "--wait=false")
    await asyncio.sleep(1)
    assert len(processes.find_in_pod(uid)) >= 2
    kubectl("delete", "pod", "stubborn", "-n", namespace, "--wait=false", *again)

    async def is_gone() -> bool:
        return processes.find_in_pod(uid) == []

    await poll_until(is_gone, within_s=20, what="no process")


async def test_a_pods_temporary_folder_has_room_for_the_path_of_a_socket(
    cluster: Cluster, kube: Kube, namespace: str, kubectl: Kubectl
) -> None:
    code = """
import socket, tempfile, uuid
path = f"{tempfile.gettempdir()}/{uuid.uuid4()}"
socket.socket(socket.AF_UNIX).bind(path)
open("/dev/termination-log", "w").write(path)
"""
    main = {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    volumes = [{"name": "tmp", "emptyDir": {}}]
    command = ["python", "-c", code]
    body = pod("socket", command, main=main, volumes=volumes, restartPolicy="Never")
    await kube.create(PODS, namespace, body)
    folder = Path(await ended(kube, namespace, "socket")).parent
    assert folder.resolve().is_relative_to(cluster.folder / "pods")
    kubectl("delete", "pod", "socket", "-n", namespace)

    async def is_removed() -> bool:
        return not folder.is_symlink()

    await poll_until(is_removed, within_s=20, what="removed")


async def test_only_the_first_process_gets_sigterm(
    kube: Kube, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    """A server ends its workers itself, once they have done their work."""
    story = tmp_path / "story"
    waiting = "while :; do sleep 0.1; done"
    worker = f"trap 'echo worker >> {story}; exit' TERM; touch {story}; {waiting}"
    parent = f"trap 'echo parent >> {story}; sleep 1; exit' TERM; sh -c \"$WORKER\" & {waiting}"
    main = {"env": [{"name": "WORKER", "value": worker}]}
    body = pod("server", ["sh", "-c", parent], main=main, terminationGracePeriodSeconds=20)
    uid = (await kube.create(PODS, namespace, body))["metadata"]["uid"]

    async def is_up() -> bool:
        return story.exists()

    async def is_gone() -> bool:
        return processes.find_in_pod(uid) == []

    await poll_until(is_up, within_s=20, what="up")
    kubectl("delete", "pod", "server", "-n", namespace, "--wait=false")
    await poll_until(is_gone, within_s=20, what="gone")
    assert story.read_text().split() == ["parent"]


async def test_a_containers_child_processes_end_with_it(kube: Kube, namespace: str) -> None:
    """Children in sessions of their own and orphaned ones are killed too."""
    child = "setsid sh -c 'setsid sleep 900 & sleep 900 &' & sleep 0.5; exit 3"
    body = pod("parent", ["sh", "-c", child], restartPolicy="Never")
    uid = (await kube.create(PODS, namespace, body))["metadata"]["uid"]
    await reached(kube, namespace, "parent", phase("Failed"))
    assert processes.find_in_pod(uid) == []


async def test_a_pod_cannot_hide_from_its_cluster(
    cluster: Cluster, kube: Kube, namespace: str
) -> None:
    hidden = [
        {"name": name, "value": "other"}
        for name in (processes.CLUSTER_ID, processes.POD_UID, processes.CONTAINER)
    ]
    body = pod("hidden", ["sleep", "900"], main={"env": hidden}, terminationGracePeriodSeconds=1)
    uid = (await kube.create(PODS, namespace, body))["metadata"]["uid"]
    await reached(kube, namespace, "hidden", phase("Running"))
    (process,) = processes.find_in_pod(uid)
    assert process in processes.find(cluster.cluster_id, processes.POD)


@pytest.mark.parametrize("policy", ["Never", "Always"])
async def test_a_followed_log_is_whole_and_ends_with_the_run(
    policy: str, kube: Kube, namespace: str, kubectl: Kubectl
) -> None:
    """Holds for a restarted container as well, whose next run has its own log."""
    code = "i=0; while [ $i -lt 40 ]; do echo line $i; sleep 0.05; i=$((i+1)); done"
    await kube.create(PODS, namespace, pod("talks", ["sh", "-c", code], restartPolicy=policy))
    await reached(kube, namespace, "talks", phase("Running"))
    text = await asyncio.to_thread(kubectl, "logs", "-f", "-n", namespace, "talks", timeout_s=40)
    assert text.split("\n") == [*(f"line {i}" for i in range(40)), ""]


async def test_options_of_logs_that_are_not_offered_are_refused(
    kube: Kube, namespace: str, kubectl: Kubectl
) -> None:
    await kube.create(PODS, namespace, pod("once", ["echo", "said"], restartPolicy="Never"))
    await reached(kube, namespace, "once", phase("Succeeded"))
    assert kubectl("logs", "-n", namespace, "once", "--tail=1") == "said\n"
    for option in ("--since=5m", "--timestamps", "--limit-bytes=2"):
        with pytest.raises(KubectlError, match="does not support"):
            kubectl("logs", "-n", namespace, "once", option)


@pytest.mark.parametrize("policy", ["Never", "Always"])
async def test_an_unsupported_pod_reports_why(policy: str, kube: Kube, namespace: str) -> None:
    """The pod fails, or with restartPolicy Always waits: its controller would replace a failed one."""
    probe = {"readinessProbe": {"grpc": {"port": 80}}}
    body = pod("asks", ["sleep", "900"], main=probe, restartPolicy=policy)
    uid = (await kube.create(PODS, namespace, body))["metadata"]["uid"]

    def refused(status: Object) -> bool:
        waiting = [c["state"].get("waiting", {}) for c in status.get("containerStatuses", [])]
        return any(each.get("reason") == "NotSupported" for each in [status, *waiting])

    found = await reached(kube, namespace, "asks", refused)
    assert found["status"]["phase"] == ("Failed" if policy == "Never" else "Pending")
    assert "containers[main].readinessProbe.grpc" in json.dumps(found["status"])
    (message,) = await messages(kube, namespace, "NotSupported")
    assert "readinessProbe.grpc" in message
    assert processes.find_in_pod(uid) == []


async def test_a_nul_byte_in_a_secret_is_named(kube: Kube, namespace: str) -> None:
    data = {"key": base64.b64encode(b"a\0b").decode()}
    await kube.create(SECRETS, namespace, {"metadata": {"name": "odd"}, "data": data})
    env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "odd", "key": "key"}}}]
    await kube.create(PODS, namespace, pod("nul", ["sleep", "900"], main={"env": env}))

    def waits(status: Object) -> bool:
        states = [c["state"] for c in status.get("containerStatuses", [])]
        return any(
            s.get("waiting", {}).get("reason") == "CreateContainerConfigError" for s in states
        )

    found = await reached(kube, namespace, "nul", waits)
    assert "NUL byte" in found["status"]["containerStatuses"][0]["state"]["waiting"]["message"]

    async def has_event() -> bool:
        return any("NUL byte" in each for each in await messages(kube, namespace, "Failed"))

    await poll_until(has_event, within_s=10, what="an Event")


async def test_a_nul_in_an_argument_fails_the_container(kube: Kube, namespace: str) -> None:
    await kube.create(PODS, namespace, pod("nul", ["echo", "a\0b"], restartPolicy="Never"))
    found = await reached(kube, namespace, "nul", phase("Failed"))
    state = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert state["reason"] == "StartError"


async def test_the_environment_is_the_kubelets(kube: Kube, namespace: str) -> None:
    data = {"key": base64.b64encode(b"pa$$word-$(HOME)-\xff").decode()}
    await kube.create(SECRETS, namespace, {"metadata": {"name": "odd"}, "data": data})
    code = (
        "import os, sys; open('/dev/termination-log', 'w').write("
        "repr([os.environb[b'K'], os.environ['V'], os.environ['X'], *sys.argv[1:]]))"
    )
    main = {
        "env": [
            {"name": "K", "valueFrom": {"secretKeyRef": {"name": "odd", "key": "key"}}},
            {"name": "V", "value": "$(HOME) $(PATH)"},
            {"name": "X", "value": "$(KUBERNETES_SERVICE_PORT) $$(V)"},
        ],
        "args": ["$(PATH)", "$(X)", "$(HOSTNAME)"],
    }
    body = pod("env", ["python", "-c", code], main=main, restartPolicy="Never")
    await kube.create(PODS, namespace, body)
    assert await ended(kube, namespace, "env") == repr(
        [b"pa$$word-$(HOME)-\xff", "$(HOME) $(PATH)", "6443 $(V)", "$(PATH)", "6443 $(V)",
         "$(HOSTNAME)"]
    )  # fmt: skip


async def test_modes_and_parts_of_volumes(kube: Kube, namespace: str) -> None:
    script = {"run": '#!/bin/sh\nprintf %s "$PART" > "$OUT"\n'}
    await kube.create(CONFIG_MAPS, namespace, {"metadata": {"name": "scripts"}, "data": script})
    main = {
        "env": [
            {"name": "NAME", "value": "deep"},
            {"name": "PART", "value": "/data/x"},
            {"name": "OUT", "value": "/dev/termination-log"},
        ],
        "volumeMounts": [
            {"name": "scripts", "mountPath": "/scripts"},
            {"name": "data", "mountPath": "/data", "subPathExpr": "of/$(NAME)"},
        ],
    }
    volumes = [
        {"name": "scripts", "configMap": {"name": "scripts", "defaultMode": 0o755}},
        {"name": "data", "emptyDir": {}},
    ]
    body = pod("parts", ["/scripts/run"], main=main, volumes=volumes, restartPolicy="Never")
    await kube.create(PODS, namespace, body)
    told = await ended(kube, namespace, "parts")
    assert told.endswith("/volumes/data/of/deep/x")


async def test_a_volume_follows_its_config_map(kube: Kube, namespace: str, tmp_path: Path) -> None:
    meta = {"name": "settings"}
    await kube.create(CONFIG_MAPS, namespace, {"metadata": meta, "data": {"a": "1", "b": "2"}})
    sources = [
        {"configMap": {"name": "settings"}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {
            "downwardAPI": {
                "items": [{"path": "deep/uid", "fieldRef": {"fieldPath": "metadata.uid"}}]
            }
        },
    ]
    body = pod(
        "reads", ["sleep", "900"], volumes=[{"name": "v", "projected": {"sources": sources}}]
    )
    made = await kube.create(PODS, namespace, body)
    volumes = Volumes(kube, made, tmp_path)
    await volumes.mount()
    folder = tmp_path / "v"
    token, inode = (folder / "token").read_text(), (folder / "a").stat().st_ino
    assert (folder / "deep/uid").read_text() == made["metadata"]["uid"]
    await kube.merge(
        CONFIG_MAPS, namespace, "settings", {"data": {"b": None, "c": "3"}}, manager="t"
    )
    await volumes.mount()
    assert {p.name for p in folder.rglob("*") if p.is_file()} == {"a", "c", "token", "uid"}
    assert (folder / "token").read_text() == token
    assert (folder / "a").stat().st_ino == inode
    assert all(p.stat().st_mode & 0o077 == 0 for p in folder.rglob("*") if p.is_file())


async def test_a_part_outside_of_its_volume_is_refused(
    kube: Kube, namespace: str, tmp_path: Path
) -> None:
    body = pod("leaves", ["sleep", "900"], volumes=[{"name": "v", "emptyDir": {}}])
    made = await kube.create(PODS, namespace, body)
    volumes = Volumes(kube, made, tmp_path)
    await volumes.mount()
    os.symlink("/etc", tmp_path / "v" / "link")
    mount = {"name": "v", "mountPath": "/v"}
    for part in ({"subPathExpr": "$(X)"}, {"subPath": "link"}, {"subPathExpr": "link/$(Y)"}):
        with pytest.raises(MountError, match="leaves its volume"):
            volumes.mounts({"volumeMounts": [mount | part]}, {"X": "../..", "Y": "a"})
