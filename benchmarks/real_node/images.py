"""Checks the built images in containers with the restrictions of the chart's pods.

Contents, labels, user and size of both; operator and gateway against a real API server, and an engine with
a small model: seconds from the start to readiness, and the end after SIGTERM, as the pod's user and as a user
ID that a cluster chose. Prints a line of JSON per check, and exits with 1 if one failed. Needs root, podman,
runc, and the images of benchmarks.real_node.build_images.

.venv/bin/python -m benchmarks.real_node.images
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.options import option_parser
from benchmarks.real_node import image_facts
from benchmarks.real_node.commands import output
from benchmarks.real_node.containers import PODMAN, container, restrictions, run_inside
from benchmarks.real_node.image_checks import (
    Record,
    Rules,
    configuration_records,
    content_records,
)
from benchmarks.real_node.pods import Pod, chart_pods, engine_pod
from tests.support.cluster.crds import install_crds

from penstock.chart.gateway.values import Gateway
from penstock.chart.names import NAMESPACE, OPERATOR_PORT
from penstock.chart.rendering.install import image_values, install_manifests
from penstock.chart.version import VERSION
from penstock.clients.kubernetes.client import connect
from penstock.core.spec.service import ENGINE_PORT
from penstock.local import cluster as clusters
from penstock.local.cluster import Cluster
from penstock.local.install import apply
from penstock.local.kubelet.images import ENGINE_IMAGE, IMAGE
from penstock.local.record import API_PORT

RULES = (
    Rules(
        IMAGE,
        frozenset({"numpy", "setuptools", "torch", "transformers", "triton"}),
        frozenset({"apt-get"}),
        max_bytes=300_000_000,
    ),
    Rules(
        ENGINE_IMAGE,
        frozenset({"kopf", "kubernetes"}),
        frozenset({"apt-get", "cc", "gcc", "ld"}),
        max_bytes=None,
    ),
)
# OpenShift gives each namespace a range of user ids; this one is of such a range.
ARBITRARY_USER = "1000730000:0"
MAX_READY_S = 5.0  # for operator and gateway; a replica that is replaced should be back in seconds
READY_TIMEOUT_S = 120.0
# An address of the cluster's loopback network that no pod has.
HOST_PART = "200.1"
PROBED = {
    "operator": OPERATOR_PORT, "gateway": Gateway().management_port, "engine": ENGINE_PORT,
}  # fmt: skip
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def image_records() -> Iterator[Record]:
    """Records of the contents and the configuration of both images."""
    for rules in RULES:
        inspected = json.loads(output(*PODMAN, "image", "inspect", rules.image))[0]
        yield from configuration_records(rules, VERSION, inspected)
        for user in (None, ARBITRARY_USER):
            flags = restrictions(engine_pod(), user)
            printed = run_inside(rules.image, flags, Path(image_facts.__file__))
            yield from content_records(rules, json.loads(printed))


def write_account(cluster: Cluster, folder: Path) -> None:
    """Write the files of a pod's service account, with the rights of the cluster's administrator."""
    configuration = json.loads(cluster.kubeconfig.read_text())
    authority = configuration["clusters"][0]["cluster"]["certificate-authority"]
    (folder / "ca.crt").write_bytes(Path(authority).read_bytes())
    (folder / "token").write_text(configuration["users"][0]["user"]["token"])
    (folder / "namespace").write_text(NAMESPACE)
    folder.chmod(0o755)  # containers have other users


async def prepare(cluster: Cluster) -> None:
    """Install the CRDs and the namespace of operator and gateway."""
    async with await connect(cluster.kubeconfig) as kube:
        await apply(kube, install_manifests(image_values(IMAGE))[0])
        await install_crds(kube)


def control_plane_records() -> Iterator[Record]:
    """Records of starts and ends of operator and gateway, each as two users."""
    with clusters.temporary("images", say=log) as cluster, tempfile.TemporaryDirectory() as folder:
        asyncio.run(prepare(cluster))
        write_account(cluster, Path(folder))
        address = f"127.{cluster.network}.{HOST_PART}"
        flags = [
            "--network=host", f"--volume={folder}:{ACCOUNT}:ro", f"--env=POD_IP={address}",
            f"--env=KUBERNETES_SERVICE_HOST={cluster.address}", f"--env=KUBERNETES_SERVICE_PORT={API_PORT}",
            f"--env=PENSTOCK_SERVICE_ACCOUNT_DIR={ACCOUNT}",
        ]  # fmt: skip
        for name, pod in chart_pods(IMAGE).items():
            command = [each.replace("$(POD_IP)", address) for each in pod["containers"][0]["args"]]
            for user in (None, ARBITRARY_USER):
                own = [*flags, f"--env=POD_NAME={name}-{user or 'own'}", *restrictions(pod, user)]
                url = f"http://{address}:{PROBED[name]}/readyz"
                yield start_record(IMAGE, name, pod, (own, command), url) | {"user": user}


def engine_records() -> Iterator[Record]:
    """Records of starts and ends of an engine on the CPU, as two users."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        # torch and transformers take seconds to import, which other steps and --help do without.
        from tests.support.engine.tiny_model import make_tiny_model

        make_tiny_model(Path(folder, "tiny"))
        pod = engine_pod()
        address = "127.0.0.1"
        command = [
            "serve",
            "--model=/models/tiny",
            f"--host={address}",
            f"--port={PROBED['engine']}",
        ]
        for user in (None, ARBITRARY_USER):
            flags = ["--network=host", f"--volume={folder}:/models:ro", *restrictions(pod, user)]
            url = f"http://{address}:{PROBED['engine']}/ready"
            yield start_record(ENGINE_IMAGE, "engine", pod, (flags, command), url) | {"user": user}


def start_record(
    image: str, name: str, pod: Pod, run: tuple[list[str], list[str]], url: str
) -> Record:
    """Start a container, wait until it is ready, and end it with SIGTERM.

    run: podman's flags, and the arguments of the entry point.
    """
    flags, command = run
    record: Record = {"check": f"start and end of {name}", "ok": False, "image": image}
    with container(image, flags, command) as started:
        try:
            ready_s = started.seconds_until_ready(url, READY_TIMEOUT_S)
        except RuntimeError as error:
            return record | {"error": str(error)}
        cpu_s = started.cpu_s()
        end = started.stop(pod["terminationGracePeriodSeconds"])
    is_fast = name == "engine" or ready_s <= MAX_READY_S
    return record | {
        "ok": is_fast and end.exit_code == 0,
        "ready_s": round(ready_s, 2),
        "ready_cpu_s": round(cpu_s, 2),
        "stop_s": round(end.stop_s, 2),
        "exit_code": end.exit_code,
    }


def log(text: str) -> None:
    print(text, file=sys.stderr)


def run_checks() -> bool:
    """Print the record of each check. Returns whether all passed."""
    passed = True
    for records in (image_records(), control_plane_records(), engine_records()):
        for record in records:
            passed &= record["ok"]
            print(json.dumps(record), flush=True)
    return passed


if __name__ == "__main__":
    option_parser(__doc__).parse_args()
    sys.exit(not run_checks())
