"""Built images are exported by the tool that has them."""

from pathlib import Path

import pytest

from penstock.local.kubelet.images import IMAGE, export_image
from penstock.local.record import ClusterError

ARCHIVE = Path("/folder/image.tar")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Record of what the tools of `install` are called with."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "log"


def install(log: Path, tool: str, *, has_image: bool) -> None:
    inspected = f'case "$*" in *inspect*) exit {int(not has_image)};; esac'
    program = log.with_name(tool)
    program.write_text(f'#!/bin/sh\n{inspected}\necho "{tool} $*" >> {log}\n')
    program.chmod(0o755)


def test_the_tool_that_has_the_image_exports_it(log: Path) -> None:
    install(log, "podman", has_image=False)
    install(log, "docker", has_image=True)
    install(log, "buildah", has_image=True)
    export_image(IMAGE, ARCHIVE)
    assert log.read_text() == f"docker save --output={ARCHIVE} {IMAGE}\n"


def test_an_image_that_is_not_built_is_named(log: Path) -> None:
    with pytest.raises(ClusterError, match="none is on PATH"):
        export_image(IMAGE, ARCHIVE)
    install(log, "podman", has_image=False)
    install(log, "buildah", has_image=False)
    with pytest.raises(ClusterError, match=f"No image {IMAGE} in podman or buildah"):
        export_image(IMAGE, ARCHIVE)
