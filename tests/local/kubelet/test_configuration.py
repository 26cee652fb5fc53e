"""Addresses, files and images of nodes with a kubelet."""

import gzip
import hashlib
import io
import json
import re
import tarfile
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from pathlib import Path

import pytest

from penstock.chart.network.values import NetworkPolicy
from penstock.local.kubelet import addons, addresses, certificates, configuration, network
from penstock.local.kubelet.pause_image import PAUSE_IMAGE, write_pause_image
from penstock.local.networks import FIRST_NETWORK, LAST_NETWORK
from penstock.local.pki import Authority
from penstock.local.record import Cluster

CLUSTER = Cluster("real", "0123456789abcdef", 77, {}, "kubelet", addresses.MAX_NODES)


@pytest.mark.parametrize("number", [FIRST_NETWORK, 96, LAST_NETWORK])
def test_addresses_of_a_cluster_do_not_overlap(number: int) -> None:
    cluster = Cluster("real", "0123456789abcdef", number, {}, "kubelet", addresses.MAX_NODES)
    nodes = range(cluster.num_nodes)
    machines = [
        addresses.machine_address(number),
        *(addresses.node_address(number, i) for i in nodes),
    ]
    pods = [IPv4Network(addresses.pod_range(number, i)) for i in nodes]
    services = IPv4Network(cluster.service_range)
    assert len(set(machines)) == len(machines)
    assert all(one.subnet_of(IPv4Network(addresses.all_pods(number))) for one in pods)
    for one, other in combinations([*pods, services], 2):
        assert not one.overlaps(other)
    assert not any(IPv4Address(each) in net for each in machines for net in [*pods, services])
    assert cluster.address == machines[0]


@pytest.mark.parametrize(
    ("target", "is_free"),
    [
        ("10.77.0.0/24", False), ("10.77.200.1", False), ("10.0.0.0/8", False), ("10.78.0.0/16", True),
        ("192.0.2.0/24", True),
    ],
)  # fmt: skip
def test_a_network_with_a_route_is_not_free(target: str, is_free: bool) -> None:
    assert addresses.is_free(77, ["127.0.0.0/8", target]) == is_free


def test_names_of_interfaces_are_short_enough() -> None:
    cluster = Cluster("real", "0123456789abcdef", LAST_NETWORK, {}, "kubelet", addresses.MAX_NODES)
    names = [network.bridge(cluster), network.outer_link(cluster, addresses.MAX_NODES - 1)]
    assert max(map(len, names)) <= 15  # IFNAMSIZ less the final zero


def test_files_name_the_cluster_and_its_own_nodes() -> None:
    tools = {"ptp": Path("/cache/cni/ptp")}
    one, other = (configuration.files(CLUSTER, index, tools) for index in (0, 1))
    assert one.keys() == other.keys()
    kubelet = json.loads(other["kubelet.json"])
    assert kubelet["address"] == "10.77.0.3"
    assert kubelet["cgroupRoot"] == "/penstock-0123456789abcdef/penstock-node-1"
    assert kubelet["clusterDNS"] == ["10.77.224.10"]
    assert not kubelet["authentication"]["anonymous"]["enabled"]
    assert kubelet["authorization"] == {"mode": "Webhook"}
    (first, second) = (
        json.loads(files["cni/10-pods.conflist"])["plugins"][0]["ipam"]["ranges"]
        for files in (one, other)
    )
    assert (first, second) == ([[{"subnet": "10.77.16.0/24"}]], [[{"subnet": "10.77.17.0/24"}]])
    user = json.loads(other["kubelet.kubeconfig"])["users"][0]["user"]
    assert user["client-certificate"].endswith("/pki/penstock-node-1.crt")


def test_services_of_programs_of_this_machine_lead_to_it() -> None:
    objects = addons.objects(CLUSTER, "")
    services = [each for each in objects if each["kind"] == "Service"]
    slices = {
        each["metadata"]["labels"]["kubernetes.io/service-name"]: each
        for each in objects
        if each["kind"] == "EndpointSlice"
    }
    assert {each["metadata"]["name"] for each in services} == set(slices)
    for each in slices.values():
        assert each["endpoints"] == [{"addresses": ["10.77.0.1"]}]
    dns = next(each for each in services if each["metadata"]["name"] == "kube-dns")
    assert dns["spec"]["clusterIP"] == "10.77.224.10"
    # Pods connect to this port after the translation of the Service's address.
    assert {port["port"] for port in slices["kube-dns"]["ports"]} <= {*NetworkPolicy().dns_ports}


def test_programs_have_the_certificates_that_their_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    cluster = Cluster("real", "0123456789abcdef", 77, {}, "kubelet", 2)
    pki = cluster.folder / "pki"
    pki.mkdir(parents=True)
    certificates.issue(Authority(pki), cluster)
    tools = {name: tmp_path / name for name in ("ptp", "coredns", "metrics-server")}
    texts = [json.dumps(addons.commands(cluster, tools)), *addons.files(cluster).values()]
    for index in range(cluster.num_nodes):
        texts += configuration.files(cluster, index, tools).values()
    named = set(re.findall(rf"{pki}/([\w.-]+)", "".join(texts)))
    assert len(named) == 1 + 2 * 6  # the authority; two nodes and four other programs
    assert named <= {path.name for path in pki.iterdir()}


def test_the_archive_of_the_pause_image_is_complete(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    write_pause_image(tmp_path / "pause.tar", program)
    with tarfile.open(tmp_path / "pause.tar") as tar:
        members = {entry.name: tar.extractfile(entry) for entry in tar}
        content = {name: file.read() for name, file in members.items() if file}
    blobs = {name.rsplit("/", 1)[1]: each for name, each in content.items() if "blobs" in name}
    assert all(hashlib.sha256(each).hexdigest() == name for name, each in blobs.items())
    (named,) = json.loads(content["index.json"])["manifests"]
    assert named["annotations"] == {"io.containerd.image.name": PAUSE_IMAGE}
    manifest = json.loads(blobs[named["digest"].removeprefix("sha256:")])
    layer = gzip.decompress(blobs[manifest["layers"][0]["digest"].removeprefix("sha256:")])
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        (entry,) = tar
        assert (entry.name, entry.mode) == ("pause", 0o755)
