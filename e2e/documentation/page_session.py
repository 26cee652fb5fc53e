"""Runs the shell and Python blocks of one page, one after the other, as a reader would."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from e2e.documentation.code_blocks import CodeBlock

BLOCK_TIMEOUT_S = 400
SERVER_TIMEOUT_S = 90
SERVER = "penstock-engine serve "
# Variables that would make a page use the clusters and the cache of the developer.
LEFT_OUT = ("KUBECONFIG", "PENSTOCK_CACHE_DIR", "VIRTUAL_ENV", "XDG_CACHE_HOME")


class BlockFailed(Exception):
    """A block that did not do what its page says; the text has its commands and what they printed."""


class PageSession:
    """A shell of its own for a page: variables, functions and the working folder outlive each block.

    A server in the foreground (`penstock-engine serve`) runs until the session is closed.
    """

    def __init__(self, page: str, tree: Path, home: Path) -> None:
        self._page = page
        self._home = home
        self._state = home / f"{page.replace('/', '-')}.env"
        self._state.write_text("")
        self._tree = tree
        self._servers: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        for server in self._servers:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=30)

    def run(self, block: CodeBlock) -> str:
        """Run a block and return its standard output. Raises BlockFailed."""
        if block.language == "python":
            return self._shell(
                f"{sys.executable} - <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK", block
            )
        if block.text.startswith(SERVER):
            self._serve(block)
            return ""
        return self._shell(block.text, block)

    def setup(self, commands: str) -> None:
        """Run what the page takes for granted. Raises BlockFailed."""
        self._shell(commands, CodeBlock(0, "bash", commands, None, False))

    def _shell(self, commands: str, block: CodeBlock) -> str:
        began = time.monotonic()
        with self._start(
            f"{commands}\n{{ export -p; declare -f; }} > {self._state}", block
        ) as process:
            try:
                code = process.wait(timeout=BLOCK_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise self._failed(block, f"took longer than {BLOCK_TIMEOUT_S} s") from None
        if code:
            raise self._failed(block, f"exit code {code}")
        print(f"{self._page}:{block.line}: {time.monotonic() - began:.1f} s")
        return self._printed.read_text()

    def _start(self, commands: str, block: CodeBlock) -> subprocess.Popen[bytes]:
        # set -a exports each variable, so that `export -p` keeps it for the next block.
        script = f'source {self._state}\nset -a\ncd "$PWD"\n{commands}\n'
        environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        self._printed = self._home / f"{self._state.stem}-{block.line}.stdout"
        # Files, not pipes: a cluster that the block starts would keep a pipe open.
        with self._printed.open("wb") as printed, self._errors.open("wb") as errors:
            return subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self._tree,
                env=environment | {"HOME": str(self._home)},
                stdin=subprocess.DEVNULL, stdout=printed, stderr=errors,
                start_new_session=True,
            )  # fmt: skip

    @property
    def _errors(self) -> Path:
        return self._printed.with_suffix(".stderr")

    def _serve(self, block: CodeBlock) -> None:
        server = self._start(block.text, block)
        self._servers.append(server)
        found = re.search(r"--port (\d+)", block.text)
        url = f"http://127.0.0.1:{found[1] if found else 8000}/ready"
        deadline = time.monotonic() + SERVER_TIMEOUT_S
        while not _answers(url):
            if server.poll() is not None or time.monotonic() > deadline:
                raise self._failed(block, f"{url} does not answer")
            time.sleep(0.2)

    def _failed(self, block: CodeBlock, what: str) -> BlockFailed:
        output = self._printed.read_text() + self._errors.read_text()
        return BlockFailed(f"{self._page}:{block.line}: {what}\n{block.text}\n{output[-3000:]}")


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return True
