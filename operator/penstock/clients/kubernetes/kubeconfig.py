"""Credentials for a cluster: those of a kubeconfig or of a pod's service account."""

import contextlib
import os
from pathlib import Path

from kubernetes.aio import client, config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from yaml import YAMLError

from penstock.errors import KubeError

DEFAULT_FILE = "~/.kube/config"
STANDARD_SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
# Errors of the client for a kubeconfig that is missing, unreadable or malformed.
UNREADABLE_CONFIG = (config.ConfigException, OSError, TypeError, AttributeError, YAMLError)


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


async def load_configuration(kubeconfig: Path | None = None) -> client.Configuration:
    """Load credentials: the given kubeconfig, else KUBECONFIG, the pod's own, or ~/.kube/config.

    In a pod the token is read anew every minute, so a rotated one is picked up. Raises KubeError.
    """
    configuration = client.Configuration()
    account = None if kubeconfig else _pod_account()
    if account is None:
        require_kubeconfig(kubeconfig)
    try:
        if account is not None:
            loader = InClusterConfigLoader(f"{account}/token", f"{account}/ca.crt")
            loader.load_and_set(configuration)
        else:
            path = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or None
            await config.load_kube_config(path, client_configuration=configuration)
    except UNREADABLE_CONFIG as error:
        problem = _problem(error, kubeconfig)
        raise KubeError(f"no credentials for a cluster: {problem}; set KUBECONFIG") from error
    configuration.client_side_validation = False
    return configuration


def _problem(error: Exception, kubeconfig: Path | None) -> str:
    """The problem of an unreadable kubeconfig, in words."""
    if not isinstance(error, TypeError | AttributeError):
        return str(error)
    # The client takes the contents of a file for a mapping.
    names = " or ".join(map(str, kubeconfig_files(kubeconfig)))
    return f"{names} is empty, or no kubeconfig"


def current_namespace() -> str:
    """The default namespace of the credentials that `load_configuration` finds, as in kubectl."""
    account = _pod_account()
    if account is not None:
        with contextlib.suppress(OSError):
            return (account / "namespace").read_text().strip() or "default"
        return "default"
    try:
        require_kubeconfig()
        _, context = config.list_kube_config_contexts(os.environ.get("KUBECONFIG") or None)
    except (KubeError, *UNREADABLE_CONFIG):  # a connection attempt will say so
        return "default"
    return str(context["context"].get("namespace") or "default")


def _pod_account() -> Path | None:
    """Folder of the pod's service account; None outside of a pod and if KUBECONFIG is set."""
    if os.environ.get("KUBECONFIG"):
        return None
    folder = Path(os.environ.get("PENSTOCK_SERVICE_ACCOUNT_DIR", STANDARD_SERVICE_ACCOUNT_DIR))
    return folder if (folder / "token").is_file() else None
