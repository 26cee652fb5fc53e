"""Builds both images with `make images` on the base image made here, and writes them as archives.

Build steps trust the certificates that this machine trusts, as a proxy may have signed those of the package
registries. The images get none of them. Needs root and buildah.

.venv/bin/python -m benchmarks.real_node.build_images --out DIR
"""

import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import option_parser
from benchmarks.real_node.base_image import BASE_IMAGE, make_base_image
from benchmarks.real_node.commands import output, run

from penstock.chart.version import VERSION

ROOT = Path(__file__).parents[2]
CONTROL_PLANE = f"localhost/penstock:{VERSION}"
ENGINE = f"localhost/penstock-engine:{VERSION}"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"  # Debian's bundle


@dataclass(frozen=True, slots=True)
class Built:
    """An image in buildah's storage, and its archive for `ctr images import`."""

    image: str
    archive: Path

    @property
    def record(self) -> dict[str, str | int]:
        return {
            "image": self.image,
            "archive": str(self.archive),
            "archive_bytes": self.archive.stat().st_size,
        }


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


def export(image: str, out: Path) -> Built:
    """Write the archive of an image to a folder."""
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"{image.removeprefix('localhost/').split(':')[0]}.tar"
    archive.unlink(missing_ok=True)  # buildah adds to an archive
    run("buildah", "push", "--quiet", image, f"oci-archive:{archive}:{image}")
    return Built(image, archive)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the archives")
    options = parser.parse_args(arguments)
    build_images()
    for image in (CONTROL_PLANE, ENGINE):
        print(json.dumps(export(image, options.out).record))


if __name__ == "__main__":
    main()
