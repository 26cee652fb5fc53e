"""Finds actionlint, or builds it from its Go module."""

from collections.abc import Callable
from pathlib import Path

from penstock.local.go_tool import ensure_module_tool

ACTIONLINT = "1.7.12"


def ensure_actionlint(say: Callable[[str], None]) -> Path:
    """Return the path of an `actionlint` binary. say: called before each slow step. Raises BuildFailed."""
    package = f"github.com/rhysd/actionlint/cmd/actionlint@v{ACTIONLINT}"
    return ensure_module_tool("actionlint", ACTIONLINT, package, "-s -w", say)
