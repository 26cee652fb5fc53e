"""The image of the pause container, which holds the namespaces of a pod."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

from penstock.local.download import machine
from penstock.local.kubelet.configuration import PAUSE_IMAGE


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
