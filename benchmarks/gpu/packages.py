"""Which packages of a step are missing or old, and the commands that bring them. Imports no torch."""

import platform
import re
import sys
import tomllib
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
FOLDER = "out/packages"
# Distributions whose name is not that of the module.
DISTRIBUTIONS = {"prometheus_client": "prometheus-client", "yaml": "pyyaml"}
# Versions of glibc that wheels are built for; those up to the machine's own fit it.
GLIBC_VERSIONS = ((2, 39), (2, 34), (2, 31), (2, 28), (2, 17))
NAME = re.compile(r"[A-Za-z0-9._-]+")


def is_there(module: str) -> bool:
    """Whether a module can be found."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def old_packages(modules: Sequence[str]) -> dict[str, str]:
    """The modules that are installed in another version than this project asks for, and how they differ.

    None without `packaging`, which compares versions.
    """
    if not is_there("packaging.requirements"):
        return {}
    from packaging.requirements import Requirement

    old = {}
    for module in modules:
        wanted = requirement(module)
        try:
            found = metadata.version(distribution(module))
        except metadata.PackageNotFoundError:
            continue
        if not Requirement(wanted).specifier.contains(found, prereleases=True):
            old[module] = f"{distribution(module)} is {found}, not {wanted}"
    return old


def how_to_bring(modules: Sequence[str]) -> str:
    """The commands that bring packages to a machine without a network: with all they depend on."""
    wanted = " ".join(f"'{requirement(module)}'" for module in modules)
    platforms = " ".join(f"--platform {tag}" for tag in platform_tags())
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"  on a machine with a network: python3 -m pip install --target {FOLDER} --no-compile "
        f"--only-binary=:all: --python-version {version} {platforms} {wanted}\n"
        f"  here, with that folder: PYTHONPATH={FOLDER} python3 benchmarks/device.py ..."
    )


def platform_tags() -> list[str]:
    """Tags of the wheels that fit this machine's glibc and processor, newest first."""
    machine = platform.machine()
    parts = platform.libc_ver()[1].split(".")
    own = (int(parts[0]), int(parts[1])) if len(parts) > 1 else GLIBC_VERSIONS[-1]
    fitting = [f"manylinux_{a}_{b}_{machine}" for a, b in GLIBC_VERSIONS if (a, b) <= own]
    return [*fitting, f"manylinux2014_{machine}"]


def distribution(module: str) -> str:
    """Name of the distribution that has a module."""
    top = module.partition(".")[0]
    return DISTRIBUTIONS.get(top, top)


def requirement(module: str) -> str:
    """The versions of a module's distribution that this project asks for; any if it does not say."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    stated = [*project["dependencies"], *project["optional-dependencies"]["engine"]]
    name = distribution(module)
    for text in stated:
        if (found := NAME.match(text)) and found[0].lower() == name:
            return str(text).partition(";")[0]
    return name
