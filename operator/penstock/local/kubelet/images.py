"""Images of nodes: those that `make images` builds, and their way into the containerd of a node."""

import shutil
import subprocess
from pathlib import Path

from penstock.chart.version import VERSION
from penstock.local.kubelet.commands import run
from penstock.local.record import ClusterError

# Names that `make images` gives the images by default.
REPOSITORY = "localhost/penstock"
IMAGE, ENGINE_IMAGE = f"{REPOSITORY}:{VERSION}", f"{REPOSITORY}-engine:{VERSION}"
# Tools in the order in which `make images` chooses one -> arguments that fail unless they have an image.
INSPECT = {
    "podman": ("image", "inspect"),
    "docker": ("image", "inspect"),
    "buildah": ("inspect", "--type=image"),
}
PINNED = "io.cri-containerd.pinned"  # containerd's label of images that are not to be removed


def export_image(reference: str, archive: Path) -> None:
    """Write a built image to an archive, by the first tool that has it. Raises ClusterError."""
    found = [name for name in INSPECT if shutil.which(name)]
    if not found:
        raise ClusterError("Images come from podman, docker or buildah: none is on PATH.")
    for name in found:
        if _has_image(name, reference):
            run([name, *_export_arguments(reference, archive)[name]])
            return
    raise ClusterError(
        f"No image {reference} in {' or '.join(found)}: build it with `make images`."
    )


def _has_image(tool: str, reference: str) -> bool:
    command = [tool, *INSPECT[tool], reference]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _export_arguments(reference: str, archive: Path) -> dict[str, list[str]]:
    """Arguments by tool. Without compression where there is a choice: it would take most of the time."""
    return {
        "podman": [
            "save", "--quiet", "--format=oci-archive", "--uncompressed", f"--output={archive}", reference,
        ],
        "docker": ["save", f"--output={archive}", reference],
        "buildah": [
            "push", "--quiet", "--disable-compression", reference, f"oci-archive:{archive}:{reference}",
        ],
    }  # fmt: skip


def import_image(node_pid: int, ctr: Path, archive: Path) -> None:
    """Import an archive of images into the containerd of a node. Raises ClusterError.

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
