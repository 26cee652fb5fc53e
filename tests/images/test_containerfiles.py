"""The Containerfiles: what they copy, pin and run as."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from kubernetes.aio.leaderelection.resourcelock import leaselock
from tests.images.containerfile import Stage, read_stages

from penstock.chart.version import VERSION
from penstock.core.manifests import restricted
from penstock.local.kubelet.images import ENGINE_IMAGE, IMAGE, INSPECT

ROOT = Path(__file__).parents[2]
FILES = ["operator/Containerfile", "engine/Containerfile"]
# Requirement files of the images -> extras that they install.
REQUIREMENTS = {"control-plane": ["operator", "gateway"], "engine": ["engine"]}

every_file = pytest.mark.parametrize("file", FILES)


def stages(file: str) -> tuple[Stage, Stage]:
    build, final = read_stages(ROOT / file)
    return build, final


def sources(file: str) -> list[str]:
    return [source for copied, _ in stages(file)[0].copied() for source in copied]


def pins(name: str) -> dict[str, str]:
    """Name of each pinned package -> version and hashes, whatever the marker, which the others decide."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", "")
    found = re.findall(r"^([\w.-]+)==(\S+)(?: ;.*?)? +(--hash.*)$", text, re.MULTILINE)
    return {name: f"{version} {hashes}" for name, version, hashes in found}


@every_file
def test_what_is_copied_is_in_the_repository(file: str) -> None:
    for source in sources(file):
        tracked = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", source],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert tracked.stdout, source


@every_file
def test_what_is_copied_is_not_ignored(file: str) -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    assert {source.split("/")[0] for source in sources(file)} == kept


def test_both_images_are_built_by_the_same_steps() -> None:
    """The steps are equal, apart from the removal of API clients and the C compiler."""

    def steps(stage: Stage, requirements: str) -> list[tuple[str, str]]:
        return [
            (step.instruction, step.text.replace(f"{requirements}.txt", "image.txt"))
            for step in stage.steps
            if step.instruction in ("COPY", "RUN", "USER", "WORKDIR")
            and not step.text.startswith(("find /opt/penstock/lib", "apt-get"))
        ]

    operators, engines = map(stages, FILES)
    for one, other in zip(operators, engines, strict=True):
        assert steps(one, "requirements/control-plane") == steps(other, "requirements/engine")


@every_file
def test_images_run_as_the_user_of_pods(file: str) -> None:
    _, final = stages(file)
    user = restricted.POD["runAsUser"]
    assert final.texts("USER") == [f"{user}:{user}"]
    assert final.pairs("ENV")["HOME"] == "/tmp"


@every_file
def test_base_images_name_no_registry(file: str) -> None:
    bases = {stage.base for stage in stages(file)}
    assert len(bases) == 1
    assert re.fullmatch(r"python:[\w.-]+", bases.pop())


@every_file
def test_images_have_labels(file: str) -> None:
    labels = stages(file)[1].pairs("LABEL")
    names = ("title", "description", "licenses", "version")
    assert set(labels) == {f"org.opencontainers.image.{name}" for name in names}


@every_file
def test_packages_are_installed_by_hash(file: str) -> None:
    for command in stages(file)[0].texts("RUN"):
        if re.search(r"\b(pip (install|sync)|uv build)\b", command) and "--no-index" not in command:
            assert "--require-hashes" in command


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_images_have_the_versions_that_are_tested(name: str) -> None:
    """After a change of pyproject.toml: make requirements."""
    image, tested = pins(name), pins("all")
    assert image.items() <= tested.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in REQUIREMENTS[name]:
        wanted += project["optional-dependencies"][extra]
    found = {pin.split(" ")[0] for pin in image}
    assert {re.split(r"[\[<>=;]", each)[0] for each in wanted} <= found


def make_images(folder: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    """Run `make images` with a program in `folder` as the only container engine."""
    return subprocess.run(
        ["make", "--no-print-directory", "--silent", "images", *variables],
        cwd=ROOT, env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_make_builds_both_images(tmp_path: Path) -> None:
    (tmp_path / "podman").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "podman").chmod(0o755)
    done = make_images(tmp_path, "REGISTRY=registry.example", "ENGINE_BUILD_FLAGS=--no-cache")
    control_plane, engine = done.stdout.splitlines()
    for built, file, name in (
        (control_plane, FILES[0], "penstock"),
        (engine, FILES[1], "penstock-engine"),
    ):
        assert f"--file {file} --build-arg VERSION={VERSION}" in built
        assert built.endswith(f"--tag registry.example/{name}:{VERSION} .")
    assert "--no-cache" in engine
    assert "--no-cache" not in control_plane


def test_a_local_cluster_looks_for_the_images_that_make_builds(tmp_path: Path) -> None:
    (tmp_path / "podman").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "podman").chmod(0o755)
    built = re.findall(r"--tag (\S+) \.$", make_images(tmp_path).stdout, re.MULTILINE)
    assert built == [IMAGE, ENGINE_IMAGE]
    chosen = re.search(r"^CONTAINER_TOOL .*$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert chosen is not None
    assert re.findall(r"command -v (\w+)", chosen[0]) == [*INSPECT]


def test_tags_can_have_a_suffix(tmp_path: Path) -> None:
    (tmp_path / "podman").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "podman").chmod(0o755)
    built = make_images(tmp_path, "TAG_SUFFIX=-arm64").stdout
    assert re.findall(r"penstock\S*:(\S+) \.$", built, re.MULTILINE) == [f"{VERSION}-arm64"] * 2
    assert built.count(f"--build-arg VERSION={VERSION} ") == 2


def test_make_names_the_missing_program(tmp_path: Path) -> None:
    done = make_images(tmp_path, "CONTAINER_TOOL=")
    assert done.returncode != 0
    assert "make images needs podman, docker or buildah on PATH" in done.stderr


def test_make_labels_the_commit(tmp_path: Path) -> None:
    """Time and revision are the commit's, so that two builds of it have the same labels."""
    (tmp_path / "podman").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "podman").chmod(0o755)
    done = make_images(tmp_path, "SOURCE=https://code.example/penstock")
    labels = [line for line in done.stdout.splitlines() if line.startswith("org.opencontainers")]
    commit, time = subprocess.run(
        ["git", "log", "-1", "--format=%H %cI"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    expected = [
        f"org.opencontainers.image.revision={commit}",
        f"org.opencontainers.image.created={time}",
        "org.opencontainers.image.source=https://code.example/penstock",
    ]
    assert [each.removesuffix("-dirty") for each in labels] == expected * len(FILES)


def test_the_control_plane_keeps_the_api_clients_that_it_uses() -> None:
    """Its build removes the classes of the Kubernetes clients that nothing uses."""
    (removal,) = [step for step in stages(FILES[0])[0].texts("RUN") if step.startswith("find")]
    kept = re.findall(r"! -path '\*/aio/\*/(\w+)_api\.\*'", removal)
    sources = [*(ROOT / "operator").rglob("*.py"), Path(leaselock.__file__)]
    found = {
        name for path in sources for name in re.findall(r"client\.(\w+)Api\b", path.read_text())
    }
    assert {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in found} == set(kept)


def test_the_control_plane_has_no_torch() -> None:
    names = {pin.split(" ")[0] for pin in pins("control-plane")}
    assert not names & {"numpy", "torch", "transformers", "triton"}
