"""Makes a base image with Python from Debian's packages, on machines that reach no image registry.

It stands in for PYTHON_IMAGE of the Containerfiles: Debian with `python`, `python -m venv`, CA certificates
and time zones, without documentation, as Debian's slim images are. The packages come from where apt's
configuration says. Needs root, buildah and debootstrap.

.venv/bin/python -m benchmarks.real_node.base_image
"""

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import option_parser
from benchmarks.real_node.commands import output, run

SUITE = "bookworm"
BASE_IMAGE = f"localhost/penstock-base:{SUITE}"
# `python` is a command of the official images, and of python-is-python3 in Debian.
PACKAGES = ("ca-certificates", "python-is-python3", "python3", "python3-venv", "tzdata")
# dpkg leaves these out in Debian's slim images too, less the licenses.
LEFT_OUT = ("doc", "info", "lintian", "locale", "man")
LICENSE = "copyright"
# Caches, logs, and what was the machine's.
REMOVED = (
    "etc/hostname", "etc/resolv.conf", "var/cache/apt", "var/cache/debconf", "var/lib/apt/lists",
    "var/log",
)  # fmt: skip
INDEX_FORMAT = "$(REPO_URI) $(CODENAME) $(ORIGIN) $(COMPONENT)"


@dataclass(frozen=True, slots=True)
class Archive:
    """A suite of a Debian mirror, such as that of the security updates."""

    address: str
    suite: str

    def source(self) -> str:
        return f"deb {self.address} {self.suite} main\n"


def archives(indexes: str, suite: str = SUITE) -> list[Archive]:
    """Debian's archives of a suite and of its updates, the suite itself first.

    indexes: what `apt-get indextargets` prints in INDEX_FORMAT.
    """
    rows = {tuple(line.split()) for line in indexes.splitlines()}
    found = [
        Archive(row[0], row[1])
        for row in rows
        if row[2:] == ("Debian", "main") and row[1].split("-")[0] == suite
    ]
    if not any(each.suite == suite for each in found):
        sys.exit(f"apt knows no archive of Debian {suite}: run apt-get update on Debian {suite}")
    return sorted(found, key=lambda each: each.suite)


def make_root(folder: Path) -> None:
    """Fill `folder` with the files of the image."""
    sources = archives(output("apt-get", "indextargets", "--format", INDEX_FORMAT))
    packages = ",".join(PACKAGES)
    run(
        "debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(folder),
        sources[0].address,
    )  # fmt: skip
    (folder / "etc/apt/sources.list").write_text("".join(each.source() for each in sources))
    excluded = "".join(f"path-exclude=/usr/share/{name}/*\n" for name in LEFT_OUT)
    (folder / "etc/dpkg/dpkg.cfg.d/slim").write_text(
        f"{excluded}path-include=/usr/share/doc/*/{LICENSE}\n"
    )
    in_image = ("chroot", str(folder), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq")
    run(*in_image, "update")
    run(*in_image, "--yes", "dist-upgrade")
    _remove_left_out(folder)


def _remove_left_out(folder: Path) -> None:
    for name in LEFT_OUT:
        for path in sorted((folder / "usr/share" / name).rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.name != LICENSE:
                path.unlink()
    for name in REMOVED:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
            path.mkdir()
        else:
            path.unlink(missing_ok=True)


def make_base_image() -> None:
    """Store the image in buildah's storage."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        make_root(root)
        container = output("buildah", "from", "scratch")
        try:
            run("buildah", "copy", "--quiet", container, str(root), "/")
            run("buildah", "commit", "--quiet", container, BASE_IMAGE)
        finally:
            run("buildah", "rm", container)


if __name__ == "__main__":
    option_parser(__doc__).parse_args()
    make_base_image()
    print(BASE_IMAGE)
