"""A container's process, hooks and probes, without a control plane."""

import os
import resource
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.http_server import served

from penstock.local import processes
from penstock.local.node.container import (
    COMMANDS,
    MAX_LOG_TAIL_BYTES,
    MAX_MESSAGE_BYTES,
    Container,
    search_path,
)
from penstock.local.node.probe import ProbeSpec

ADDRESS = "127.201.1.1"

MakeContainer = Callable[..., Container]


@pytest.fixture
def container(tmp_path: Path) -> MakeContainer:
    def make(script: str = "", pod_ip: str = ADDRESS, **spec: Any) -> Container:
        return Container(
            {"name": "main", "command": ["/bin/sh", "-c", script], **spec},
            env={}, machine={"PATH": os.environ["PATH"]},
            marks={processes.POD_UID: str(tmp_path), processes.CONTAINER: "n/p/main"},
            mounts={}, folder=tmp_path / "main", pod_ip=pod_ip,
        )  # fmt: skip

    return make


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Port of a server at the pod's address that answers 200 only at /health."""

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/health", health)
    async with served(app, ADDRESS) as address:
        yield int(address.rpartition(":")[2])


async def message(container: Container) -> str:
    await container.start()
    return container.message(await container.wait())


@pytest.mark.parametrize("policy", ["File", "FallbackToLogsOnError"])
@pytest.mark.parametrize(
    "instead",
    ["true", "rm -rf ./*", "mkdir /dev/termination-log/x -p",
     "mkfifo /dev/termination-log", "ln -s /dev/zero /dev/termination-log"],
)  # fmt: skip
async def test_a_container_may_put_anything_in_the_place_of_its_message(
    instead: str, policy: str, container: MakeContainer
) -> None:
    """The message is empty then; the next run has a message again."""
    script = f"rm -f /dev/termination-log; {instead}; exit 1"
    assert await message(container(script, terminationMessagePolicy=policy)) == ""
    assert await message(container("echo why > /dev/termination-log; exit 1")) == "why"


async def test_long_messages_are_cut(container: MakeContainer) -> None:
    line = "yes | head -c 100000"
    stated = await message(container(f"{line} > /dev/termination-log; exit 1"))
    assert MAX_MESSAGE_BYTES - 2 <= len(stated) <= MAX_MESSAGE_BYTES
    policy = "FallbackToLogsOnError"
    logged = await message(container(f"{line}; exit 1", terminationMessagePolicy=policy))
    assert MAX_LOG_TAIL_BYTES - 2 <= len(logged) <= MAX_LOG_TAIL_BYTES


@pytest.mark.parametrize("path", ["/health", "health", "health?full=1"])
async def test_a_path_needs_no_slash_in_front(
    path: str, container: MakeContainer, port: int
) -> None:
    assert await container().act({"httpGet": {"port": port, "path": path}}, 5) is None


async def test_a_path_names_no_other_host(container: MakeContainer, port: int) -> None:
    action = {"httpGet": {"port": port, "path": f"@{ADDRESS}:{port}/health"}}
    assert await container().act(action, 5) == "HTTP probe failed with statuscode: 404"


async def test_a_connection_is_made_to_the_host_that_is_stated(
    container: MakeContainer, port: int
) -> None:
    here = container(pod_ip="127.201.1.2")
    assert await here.act({"tcpSocket": {"port": port}}, 5) is not None
    assert await here.act({"tcpSocket": {"port": port, "host": ADDRESS}}, 5) is None


async def test_only_the_first_bytes_of_a_probes_output_are_kept(
    container: MakeContainer,
) -> None:
    main = container()
    await main.start()
    await main.wait()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "yes wrong | head -c 400000000 >&2; exit 3"
    spec = ProbeSpec.of({"exec": {"command": ["/bin/sh", "-c", script]}, "timeoutSeconds": 60})
    assert spec is not None
    failure = await main.probe(spec)
    assert failure is not None
    assert failure.startswith("exit code 3: wrong\nwrong")
    assert len(failure) < 300
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert grown_kib < 100 * 1024


def test_commands_of_tests_come_before_those_of_this_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv(COMMANDS, raising=False)
    folder = os.path.dirname(sys.executable)
    assert search_path() == f"{folder}:/usr/bin:/bin"
    monkeypatch.setenv(COMMANDS, "/commands")
    assert search_path() == f"/commands:{folder}:/usr/bin:/bin"
