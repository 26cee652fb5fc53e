"""The node agent under the real control plane."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.resources import CONFIG_MAPS, PODS, SECRETS
from penstock.demo.kubectl import Kubectl
from penstock.demo.stage import poll_until
from penstock.errors import NotFound
from penstock.local import processes
from penstock.local.binaries import ensure_binaries
from penstock.local.cluster import Cluster

pytestmark = pytest.mark.cluster

SERVER = """
import http.server, os, signal, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *_): pass
print("listening", flush=True)
http.server.HTTPServer((os.environ["IP"], 8000), Handler).serve_forever()
"""


def pod(name: str, code: str, **spec: Any) -> Object:
    container = {
        "name": "main",
        "image": "none",
        "command": ["python", "-c", code],
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec},
    }


async def settled(kube: Kube, namespace: str, name: str, phase: str) -> Object:
    async def reached() -> bool:
        found = await kube.get(PODS, namespace, name)
        return found.get("status", {}).get("phase") == phase

    await poll_until(reached, within_s=30, what=f"{name} is {phase}")
    return await kube.get(PODS, namespace, name)


def state(found: Object) -> Object:
    return found["status"]["containerStatuses"][0]


async def test_a_probed_server_becomes_ready_and_its_log_is_kubectls(
    cluster: Cluster, kube: Kube, namespace: str
) -> None:
    probe = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}
    body = pod("web", SERVER, container={"readinessProbe": probe})
    await kube.create(PODS, namespace, body)

    async def ready() -> bool:
        found = await kube.get(PODS, namespace, "web")
        return "status" in found and bool(
            found["status"].get("containerStatuses") and state(found)["ready"]
        )

    await poll_until(ready, within_s=30, what="ready")
    found = await kube.get(PODS, namespace, "web")
    assert found["status"]["podIP"].startswith(f"127.{cluster.network}.")
    kubectl = Kubectl(ensure_binaries(lambda _: None)["kubectl"], cluster.kubeconfig)
    assert kubectl("logs", "-n", namespace, "web").strip() == "listening"


async def test_an_end_is_reported_with_its_message(kube: Kube, namespace: str) -> None:
    code = "import sys; open('/dev/termination-log','w').write('it broke'); sys.exit(3)"
    body = pod("once", "", restartPolicy="Never")
    body["spec"]["containers"][0]["command"] = ["python", "-c", code]
    await kube.create(PODS, namespace, body)
    ended = state(await settled(kube, namespace, "once", "Failed"))["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (3, "it broke")


async def test_a_crashing_container_backs_off(kube: Kube, namespace: str) -> None:
    await kube.create(PODS, namespace, pod("crash", "raise SystemExit(1)"))

    async def backing_off() -> bool:
        found = await kube.get(PODS, namespace, "crash")
        statuses = found["status"].get("containerStatuses")
        waiting = statuses and statuses[0]["state"].get("waiting", {})
        return bool(waiting) and waiting.get("reason") == "CrashLoopBackOff"

    await poll_until(backing_off, within_s=30, what="CrashLoopBackOff")


async def test_a_failed_init_container_stops_the_pod(kube: Kube, namespace: str) -> None:
    init = {"name": "init", "image": "none", "command": ["python", "-c", "raise SystemExit(7)"]}
    await kube.create(
        PODS, namespace, pod("init", SERVER, restartPolicy="Never", initContainers=[init])
    )
    found = await settled(kube, namespace, "init", "Failed")
    assert found["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert "running" not in state(found)["state"]


async def test_volumes_and_variables_arrive(kube: Kube, namespace: str) -> None:
    meta = {"name": "stuff"}
    await kube.create(CONFIG_MAPS, namespace, {"metadata": meta, "data": {"greeting": "hello"}})
    await kube.create(SECRETS, namespace, {"metadata": meta, "stringData": {"key": "s3cret"}})
    code = (
        "import os; out = open('/config/greeting').read() + open('/secret/key').read()"
        " + os.environ['KEY']; open('/scratch/x', 'w').write('y');"
        "open('/dev/termination-log','w').write(out + open('/scratch/x').read())"
    )
    body = pod(
        "volumes",
        code,
        restartPolicy="Never",
        container={
            "env": [
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "stuff", "key": "key"}}}
            ],
            "volumeMounts": [
                {"name": "c", "mountPath": "/config"},
                {"name": "s", "mountPath": "/secret"},
                {"name": "w", "mountPath": "/scratch"},
            ],
        },
        volumes=[
            {"name": "c", "configMap": {"name": "stuff"}},
            {"name": "s", "secret": {"secretName": "stuff"}},
            {"name": "w", "emptyDir": {}},
        ],
    )
    await kube.create(PODS, namespace, body)
    found = await settled(kube, namespace, "volumes", "Succeeded")
    assert state(found)["state"]["terminated"]["message"] == "hellos3crets3crety"


async def test_programs_learn_which_folders_are_mounted(
    kube: Kube, namespace: str, tmp_path: Path
) -> None:
    """A path in a request, such as /adapters/pvc/a/sql, is not rewritten as arguments are."""
    code = (
        "import json, os; mounts = json.loads(os.environ['PENSTOCK_LOCAL_MOUNTS']);"
        "open('/dev/termination-log','w').write(mounts['/adapters' + '/pvc/a'])"
    )
    mount = {"name": "a", "mountPath": "/adapters/pvc/a", "readOnly": True}
    body = pod(
        "mounts",
        code,
        restartPolicy="Never",
        container={"volumeMounts": [mount]},
        volumes=[{"name": "a", "hostPath": {"path": str(tmp_path)}}],
    )
    await kube.create(PODS, namespace, body)
    found = await settled(kube, namespace, "mounts", "Succeeded")
    assert state(found)["state"]["terminated"]["message"] == str(tmp_path)


async def test_a_missing_volume_keeps_the_pod_pending_with_an_event(
    kube: Kube, namespace: str
) -> None:
    volumes = [{"name": "c", "configMap": {"name": "nowhere"}}]
    await kube.create(PODS, namespace, pod("pending", SERVER, volumes=volumes))

    async def has_event() -> bool:
        from penstock.clients.kubernetes.resources import EVENTS

        events, _ = await kube.list(EVENTS, namespace)
        return any(e["reason"] == "FailedMount" and "nowhere" in e["message"] for e in events)

    await poll_until(has_event, within_s=20, what="FailedMount")
    assert (await kube.get(PODS, namespace, "pending"))["status"]["phase"] == "Pending"


async def test_the_token_of_a_pod_has_the_rights_that_rbac_gives_it(
    kube: Kube, namespace: str
) -> None:
    code = """
import json, os, ssl, urllib.request, urllib.error
folder = os.environ["SA"]
token = open(folder + "/token").read()
context = ssl.create_default_context(cafile=folder + "/ca.crt")
base = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
answers = []
for path in (f"/api/v1/namespaces/{os.environ['NS']}/pods", "/api/v1/secrets"):
    request = urllib.request.Request(base + path, headers={"Authorization": "Bearer " + token})
    try:
        answers.append(urllib.request.urlopen(request, context=context).status)
    except urllib.error.HTTPError as error:
        answers.append(error.code)
open("/dev/termination-log", "w").write(json.dumps(answers))
"""
    rbac = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{rbac}/v1",
        "kind": "Role",
        "metadata": {"name": "see", "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    }
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "see", "namespace": namespace},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "see"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    await kube.apply(role, manager="tests")
    await kube.apply(binding, manager="tests")
    env = [
        {"name": "SA", "value": "/var/run/secrets/kubernetes.io/serviceaccount"},
        {"name": "NS", "value": namespace},
    ]
    body = pod("token", code, restartPolicy="Never", container={"env": env})
    await kube.create(PODS, namespace, body)
    found = await settled(kube, namespace, "token", "Succeeded")
    assert json.loads(state(found)["state"]["terminated"]["message"]) == [200, 403]


async def test_deletion_runs_pre_stop_then_sigterm_then_waits(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Any
) -> None:
    story = tmp_path / "story"
    code = f"""
import signal, time
def note(text): open({str(story)!r}, "a").write(text + " ")
def term(*_):
    note("term"); time.sleep(0.5); note("done"); raise SystemExit(0)
signal.signal(signal.SIGTERM, term)
note("up")
while True: time.sleep(0.1)
"""
    hook = {"preStop": {"exec": {"command": ["sh", "-c", f"printf 'stop ' >> {story}"]}}}
    await kube.create(PODS, namespace, pod("graceful", code, container={"lifecycle": hook}))

    async def is_up() -> bool:
        return story.exists()

    await poll_until(is_up, within_s=20, what="up")
    await kube.delete(PODS, namespace, "graceful")

    async def is_gone() -> bool:
        try:
            await kube.get(PODS, namespace, "graceful")
        except NotFound:
            return True
        return False

    await poll_until(is_gone, within_s=20, what="gone")
    assert story.read_text().split() == ["up", "stop", "term", "done"]
    left = [
        process
        for process in processes.find(cluster.cluster_id, processes.POD)
        if (processes.variable(process, processes.CONTAINER) or "").startswith(f"{namespace}/")
    ]
    assert left == []
    assert os.listdir(cluster.folder / "pods") is not None
    await asyncio.sleep(0)
