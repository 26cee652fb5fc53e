"""Runs kubectl as a user would."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


class KubectlError(Exception):
    """kubectl failed; the text is what it printed."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`kubectl` against one cluster, with its discovery cache kept inside that cluster's folder.

    namespace: of commands without -n; None: that of the context.
    """

    binary: Path
    kubeconfig: Path
    namespace: str | None = None

    def __call__(self, *args: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Run kubectl and return its standard output. Raises KubectlError with its error text."""
        done = subprocess.run(
            self.command(*args),
            env=self.environment, input=stdin, capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise KubectlError(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def command(self, *args: str) -> list[str]:
        """Build the command line, which needs `environment`."""
        chosen = [] if self.namespace is None else [f"--namespace={self.namespace}"]
        return [str(self.binary), *chosen, *args]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.kubeconfig.parent / "kubectl-cache"),
        }
