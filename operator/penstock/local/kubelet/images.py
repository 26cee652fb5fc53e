"""Images of a node: the archive of the pause image, and imports into containerd."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path

from penstock.local.download import machine
from penstock.local.kubelet.commands import run
from penstock.local.kubelet.configuration import PAUSE_IMAGE
from penstock.local.record import ClusterError

# Names of the images that `make images` builds, without their tags.
IMAGE = "localhost/penstock"
ENGINE_IMAGE = "localhost/penstock-engine"
PINNED = "io.cri-containerd.pinned"  # containerd's label of images that are not to be removed


def write_pause_image(archive: Path, program: Path) -> None:
    """Write an OCI archive with an image of one program, /pause."""
    layer = _tar({"pause": program.read_bytes()})
    compressed = gzip.compress(layer, mtime=0)
    config = {
        "architecture": machine(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config_bytes = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("config.v1+json", config_bytes),
        "layers": [_descriptor("layer.v1.tar+gzip", compressed)],
    }
    manifest_bytes = json.dumps(manifest).encode()
    named = _descriptor("manifest.v1+json", manifest_bytes)
    named["annotations"] = {"io.containerd.image.name": PAUSE_IMAGE}
    blobs = {
        f"blobs/sha256/{_digest(each).removeprefix('sha256:')}": each
        for each in (compressed, config_bytes, manifest_bytes)
    }
    index = {"schemaVersion": 2, "manifests": [named]}
    layout = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps(index).encode(),
    }
    archive.write_bytes(_tar(layout | blobs))


def export_image(reference: str, archive: Path) -> None:
    """Write a built image to an archive, from buildah, podman or docker. Raises ClusterError."""
    commands = {
        "buildah": [
            "push",
            "--quiet",
            "--disable-compression",
            reference,
            f"oci-archive:{archive}:{reference}",
        ],
        "podman": ["save", "--quiet", "--format=oci-archive", f"--output={archive}", reference],
        "docker": ["save", f"--output={archive}", reference],
    }
    found = [name for name in commands if shutil.which(name)]
    if not found:
        raise ClusterError("Images come from podman, buildah or docker: none is on PATH.")
    run([found[0], *commands[found[0]]])


def import_image(node_pid: int, ctr: Path, archive: Path) -> None:
    """Import an OCI archive into the containerd of a node. Raises ClusterError.

    node_pid: of the node's first process, whose namespaces have containerd's socket.
    """
    _run_images_command(node_pid, ctr, "import", str(archive))


def pin_image(node_pid: int, ctr: Path, reference: str) -> None:
    """Have the kubelet keep an image when the disk is full: no registry has it. Raises ClusterError."""
    _run_images_command(node_pid, ctr, "label", reference, f"{PINNED}=pinned")


def name_image(node_pid: int, ctr: Path, source: str, name: str) -> None:
    """Give an image in the containerd of a node a second name. Raises ClusterError."""
    _run_images_command(node_pid, ctr, "tag", source, name)


def _run_images_command(node_pid: int, ctr: Path, *arguments: str) -> None:
    enter = ["nsenter", f"--target={node_pid}", "--mount", "--"]
    run([*enter, str(ctr), "--namespace=k8s.io", "images", *arguments])


def _tar(files: dict[str, bytes]) -> bytes:
    """Make a tar archive of executable files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {
        "mediaType": f"application/vnd.oci.image.{kind}",
        "digest": _digest(content),
        "size": len(content),
    }
