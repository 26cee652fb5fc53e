"""Runs a container as a process: start, probes, hooks, signals and exit code."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from penstock.core.spec.service import Object
from penstock.local import processes
from penstock.local.node.environment import expand, rewrite_paths
from penstock.local.node.probe import ProbeSpec

COMMANDS = "PENSTOCK_LOCAL_COMMANDS"
TERMINATION_LOG = "/dev/termination-log"
MAX_MESSAGE_BYTES = 4096  # the kubelet's cap on a termination message
MAX_LOG_TAIL_BYTES = 2048  # the kubelet's cap when the log stands in for the message
MAX_ERROR_BYTES = 200  # of a failed command's standard error, for the Event


class Container:
    """A single run of a container, as its own process group, with its output in `log`.

    env: variables set by the pod. machine: defaults that the pod may override. marks: variables that
    it cannot override, which identify its processes. mounts: path in the container -> path on this
    machine. temporary_folder: short path of its /tmp; None if it has none of its own.
    """

    def __init__(
        self, spec: Object, *, env: Mapping[str, str], machine: Mapping[str, str],
        marks: Mapping[str, str], mounts: Mapping[str, str], folder: Path, pod_ip: str,
        temporary_folder: str | None = None,
    ) -> None:  # fmt: skip
        self.spec = spec
        self.name: str = spec["name"]
        self.has_ended = False  # also True if its process could not be started
        self._folder = folder
        self._pod_ip = pod_ip
        path = spec.get("terminationMessagePath", TERMINATION_LOG)
        self._termination_log = folder / "termination-log"
        self._mounts = {**mounts, path: str(self._termination_log)}
        self._pod_env = env
        self._marks = marks
        # Paths are rewritten only in values set by the pod: the defaults hold paths of this machine.
        pod_env = {name: rewrite_paths(value, self._mounts) for name, value in env.items()}
        self._env = {**machine, **pod_env, **marks}
        if temporary_folder is not None:
            self._env.setdefault("TMPDIR", temporary_folder)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> Path:
        return self._folder / "log"

    def command(self) -> list[str]:
        """Return command and args with variables and paths replaced. There are no image entrypoints."""
        words = [*self.spec.get("command", []), *self.spec.get("args", [])]
        return [self._word(word) for word in words]

    async def start(self) -> None:
        """Start the process. Raises OSError or ValueError if the command cannot be run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        make_empty(self._termination_log)
        if self.log.exists():
            self.log.replace(self._folder / "log.previous")
        command = self.command()
        if not command:
            raise OSError("the container states no command, and there is no image to take it from")
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env=self._env,
                cwd=self._working_folder(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )

    async def wait(self) -> int:
        """Wait until the process ends, and kill all that it started.

        Returns the exit code; 128 + n after signal n.
        """
        assert self._process is not None
        try:
            code = await self._process.wait()
        finally:
            self.kill()
            await asyncio.to_thread(self._kill_remaining)
            self.has_ended = True
        return 128 - code if code < 0 else code

    def _kill_remaining(self) -> None:
        """Kill the container's remaining processes, including those in sessions of their own."""
        uid, name = self._marks[processes.POD_UID], self._marks[processes.CONTAINER]
        processes.kill(lambda: processes.find_in_pod(uid, name))

    def terminate(self) -> None:
        """Send SIGTERM to the container's first process, which ends the others as it sees fit.

        Container runtimes do so too. A worker process that got the signal itself would break off the
        requests that its parent lets finish.
        """
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the process group, if it is running."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def message(self, exit_code: int) -> str:
        """Return the termination message, as terminationMessagePolicy defines it."""
        text = head_bytes(self._termination_log, MAX_MESSAGE_BYTES)
        fallback = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if not text and fallback and exit_code != 0:
            text = tail_bytes(self.log, MAX_LOG_TAIL_BYTES)
        return text.decode(errors="replace").strip()

    async def act(self, action: Object, timeout_s: float) -> str | None:
        """Run an httpGet, tcpSocket, exec or sleep action. Returns why it failed, or None."""
        try:
            async with asyncio.timeout(timeout_s):
                if "httpGet" in action:
                    return await self._http_get(action["httpGet"])
                if "tcpSocket" in action:
                    socket = action["tcpSocket"]
                    host, port = socket.get("host") or self._pod_ip, self._port(socket["port"])
                    _, writer = await asyncio.open_connection(host, port)
                    writer.close()
                    return None
                if "sleep" in action:
                    await asyncio.sleep(action["sleep"]["seconds"])
                    return None
                return await self._exec(action["exec"]["command"])
        except TimeoutError:
            return f"no answer within {timeout_s:g} s"
        except (OSError, ValueError, aiohttp.ClientError) as error:
            return f"{type(error).__name__}: {error}"

    async def probe(self, spec: ProbeSpec) -> str | None:
        """Run a probe. Returns why it failed, or None. Expands variables in its command, unlike `act`."""
        action = spec.action
        if "exec" in action:
            words = [expand(word, self._pod_env) for word in action["exec"]["command"]]
            action = {"exec": {"command": words}}
        return await self.act(action, spec.timeout_s)

    async def _http_get(self, get: Object) -> str | None:
        host = get.get("host") or self._pod_ip
        scheme = get.get("scheme", "HTTP").lower()
        path = get.get("path", "/")
        slash = "" if path.startswith("/") else "/"
        url = f"{scheme}://{host}:{self._port(get['port'])}{slash}{path}"
        headers = {h["name"]: h["value"] for h in get.get("httpHeaders", [])}
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=False, allow_redirects=False) as answer,
        ):
            if 200 <= answer.status < 400:
                return None
            return f"HTTP probe failed with statuscode: {answer.status}"

    async def _exec(self, command: list[str]) -> str | None:
        words = [rewrite_paths(word, self._mounts) for word in command]
        process = await asyncio.create_subprocess_exec(
            *words, env=self._env, cwd=self._working_folder(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            errors = await first_bytes(process.stderr, MAX_ERROR_BYTES)
            await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and its children
            await process.wait()
            raise
        if process.returncode == 0:
            return None
        return f"exit code {process.returncode}: {errors.decode(errors='replace')}"

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        named = {p.get("name"): p["containerPort"] for p in self.spec.get("ports", [])}
        if port not in named:
            raise OSError(f"no port is named {port!r}")
        return int(named[port])

    def _word(self, text: str) -> str:
        return rewrite_paths(expand(text, self._pod_env), self._mounts)

    def _working_folder(self) -> str:
        chosen = self.spec.get("workingDir")
        folder = rewrite_paths(chosen, self._mounts) if chosen else str(self._folder)
        return folder if os.path.isdir(folder) else str(self._folder)


async def first_bytes(stream: asyncio.StreamReader, count: int) -> bytes:
    """Read a stream to its end, and return its first bytes."""
    kept = b""
    while chunk := await stream.read(1 << 16):
        kept += chunk[: count - len(kept)]
    return kept


def make_empty(path: Path) -> None:
    """Create an empty file, replacing any file, link or folder that the container made there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.touch()


def head_bytes(path: Path, count: int) -> bytes:
    """Read the first bytes of a file; empty if there is none, as a container may remove it."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(count)


def tail_bytes(path: Path, count: int) -> bytes:
    """Read the last bytes of a file; empty if there is none."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - count))
        return file.read()


def search_path() -> str:
    """Return PATH with the folder of this interpreter first, where `penstock-engine` is.

    Before it is the folder that PENSTOCK_LOCAL_COMMANDS names, if any: tests replace commands of pods there.
    """
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    if COMMANDS in os.environ:
        folders.insert(0, os.environ[COMMANDS])
    return ":".join(folders)
