"""Builds both images with `make images` on the base image made here.

Build steps trust the certificates that this machine trusts, as a proxy may have signed those of the package
registries. The images get none of them. Needs root and buildah.

.venv/bin/python -m benchmarks.real_node.build_images
"""

import os
import ssl
import subprocess
import tempfile
from pathlib import Path

from benchmarks.options import option_parser
from benchmarks.real_node.base_image import BASE_IMAGE, make_base_image
from benchmarks.real_node.commands import output, run

ROOT = Path(__file__).parents[2]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"  # Debian's bundle


def build_flags(folder: Path) -> list[str]:
    """Flags of `buildah build` on such a machine.

    folder: an empty one for uv's configuration, which is mounted into the build steps.
    """
    (folder / "uv.toml").write_text("system-certs = true\n")
    return [
        "--isolation=chroot",  # runc would raise limits, which takes a right that root may lack
        "--ulimit=nofile=1024:1024",
        f"--timestamp={output('git', '-C', str(ROOT), 'log', '-1', '--format=%ct')}",
        f"--build-arg=PYTHON_IMAGE={BASE_IMAGE}",
        f"--volume={trusted()}:{CERTIFICATES}:ro",
        f"--volume={folder}:/etc/uv:ro",
    ]


def trusted() -> str:
    """The bundle of certificates that this machine trusts."""
    return os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or CERTIFICATES


def build_images() -> None:
    """Build both images, and the base image if it is missing."""
    if subprocess.run(
        ["buildah", "inspect", BASE_IMAGE], capture_output=True, check=False
    ).returncode:
        make_base_image()
    with tempfile.TemporaryDirectory() as folder:
        flags = " ".join(build_flags(Path(folder)))
        run("make", "-C", str(ROOT), "images", "CONTAINER_TOOL=buildah", f"BUILD_FLAGS={flags}")


if __name__ == "__main__":
    option_parser(__doc__).parse_args()
    build_images()
