"""Finds a registry of images, or builds it from its Go module."""

from collections.abc import Callable
from pathlib import Path

from penstock.local.go_tool import ensure_module_tool

REGISTRY = "0.22.1"


def ensure_registry(say: Callable[[str], None]) -> Path:
    """Return the path of a `registry` binary. say: called before each slow step. Raises BuildFailed."""
    package = f"github.com/google/go-containerregistry/cmd/registry@v{REGISTRY}"
    return ensure_module_tool("registry", REGISTRY, package, "-s -w", say)
