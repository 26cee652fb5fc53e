"""Finds versitygw, a server of S3 for a folder, or builds it from its Go module."""

from collections.abc import Callable
from pathlib import Path

from penstock.local.go_tool import ensure_module_tool

VERSITYGW = "1.8.0"


def ensure_versitygw(say: Callable[[str], None]) -> Path:
    """Return the path of a `versitygw` binary. say: called before each slow step. Raises BuildFailed."""
    package = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW}"
    return ensure_module_tool("versitygw", VERSITYGW, package, "-s -w", say)
