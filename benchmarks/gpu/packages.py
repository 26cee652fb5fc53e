"""How to bring Python packages to a machine without a network. Imports no torch."""

import sys
from collections.abc import Iterable

# Packages whose name on the index differs from the module's.
INDEX_NAMES = {"prometheus_client": "prometheus-client"}


def how_to_bring(missing: Iterable[str]) -> str:
    """The commands that fetch packages as wheels elsewhere and install them here; empty for none."""
    names = " ".join(sorted(INDEX_NAMES.get(name, name) for name in missing))
    if not names:
        return ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        "\n  where there is a network:"
        f" python3 -m pip download --only-binary=:all: --python-version {version} -d wheels {names}"
        "\n  then here: python3 -m pip install --no-index --find-links wheels "
        f"{names}"
    )
