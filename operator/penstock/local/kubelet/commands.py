"""Commands of the machine that set up nodes."""

import subprocess
from collections.abc import Sequence

from penstock.local.record import ClusterError

MAX_SAID_CHARS = 800  # of standard error in a message


def run(command: Sequence[str], *, stdin: str | None = None) -> None:
    """Run a command. Raises ClusterError with the end of what it wrote to standard error."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(
            f"`{' '.join(command)}` failed:\n{done.stderr.strip()[-MAX_SAID_CHARS:]}"
        )
