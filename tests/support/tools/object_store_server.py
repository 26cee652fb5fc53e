"""Finds servers of S3 and of Google Cloud Storage, or builds them from their Go modules."""

from collections.abc import Callable
from pathlib import Path

from penstock.local.go_tool import ensure_module_tool

VERSITYGW = "1.8.0"
FAKE_GCS = "1.56.1"


def ensure_versitygw(say: Callable[[str], None]) -> Path:
    """Return the path of a `versitygw` binary. say: called before each slow step. Raises BuildFailed."""
    package = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW}"
    return ensure_module_tool("versitygw", VERSITYGW, package, "-s -w", say)


def ensure_fake_gcs(say: Callable[[str], None]) -> Path:
    """Return the path of a `fake-gcs-server` binary, as `ensure_versitygw`. Raises BuildFailed."""
    package = f"github.com/fsouza/fake-gcs-server@v{FAKE_GCS}"
    return ensure_module_tool("fake-gcs-server", FAKE_GCS, package, "-s -w", say)
