"""Runs the hub mirror of a local cluster as `penstock local up` starts it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

from penstock.local import record
from penstock.local.networks import free_network
from penstock.local.record import Cluster


@contextmanager
def mirror_process() -> Iterator[Cluster]:
    """Run a mirror, of the models in the cache that PENSTOCK_CACHE_DIR names. Yields its cluster.

    Nothing else of the cluster runs.
    """
    record.clusters_root().mkdir(parents=True, exist_ok=True)
    made = record.create("mirrored", free_network("agent", taken=()), {})
    command = [sys.executable, "-m", "penstock.local.hub", made.name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _wait(process, made.hub_url)
        yield made
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=30)
        print(output)


def _wait(process: "subprocess.Popen[str]", url: str) -> None:
    for _ in range(300):
        assert process.poll() is None, process.communicate()
        with suppress(httpx.TransportError):
            httpx.get(url, trust_env=False)
            return
        time.sleep(0.1)
    raise AssertionError("the mirror does not listen")
