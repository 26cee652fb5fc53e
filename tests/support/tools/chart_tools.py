"""Finds helm and kubeconform, or builds them from their Go modules."""

from collections.abc import Callable
from pathlib import Path

from penstock.local.go_tool import ensure_module_tool

HELM = "4.3.1"
KUBECONFORM = "0.8.0"
_HELM_VERSION = "helm.sh/helm/v4/internal/version.version"


def ensure_helm(say: Callable[[str], None]) -> Path:
    """Return the path of a `helm` binary. say: called before each slow step. Raises BuildFailed."""
    module = f"helm.sh/helm/v4/cmd/helm@v{HELM}"
    return ensure_module_tool("helm", HELM, module, f"-s -w -X {_HELM_VERSION}=v{HELM}", say)


def ensure_kubeconform(say: Callable[[str], None]) -> Path:
    """Return the path of a `kubeconform` binary, as `ensure_helm`."""
    module = f"github.com/yannh/kubeconform/cmd/kubeconform@v{KUBECONFORM}"
    flags = f"-s -w -X main.version=v{KUBECONFORM}"
    return ensure_module_tool("kubeconform", KUBECONFORM, module, flags, say)
