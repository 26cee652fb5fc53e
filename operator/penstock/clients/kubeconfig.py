"""The files that a kubeconfig is read from."""

import os
from pathlib import Path

from penstock.errors import KubeError

DEFAULT_FILE = "~/.kube/config"


def kubeconfig_files(given: Path | None = None) -> list[Path]:
    """Return the files in which credentials are looked for: the given one, KUBECONFIG's, or the default."""
    text = str(given) if given else os.environ.get("KUBECONFIG") or DEFAULT_FILE
    return [Path(each).expanduser() for each in text.split(os.pathsep) if each]


def require_kubeconfig(given: Path | None = None) -> None:
    """Raise KubeError if none of the files exists."""
    files = kubeconfig_files(given)
    if not any(each.exists() for each in files):
        names = " and no ".join(map(str, files))
        raise KubeError(
            f"no credentials for a cluster: there is no {names}; run `penstock local up` and "
            '`eval "$(penstock local env)"`, or set KUBECONFIG'
        )
