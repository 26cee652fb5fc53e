"""LoRA adapters of a service on vLLM for CPU: loaded on demand, answered by their weights, refused, removed.

    python -m benchmarks.cluster.vllm_adapters [--python 3.12] [--engines 1] [--within 1200]

Compares the greedy answers through the gateway with those of the model into which each adapter is merged.
Exits with 1 if a request for a good adapter failed, an adapter's answers are not its own, an engine has more
adapters than slots, a broken adapter was served, or an engine restarted. The folder /adapters of this
machine must not exist: it belongs to the run.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cluster.campaigns.adapted_run import run
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.cluster.campaigns.vllm_install import find_vllm
from benchmarks.options import option_parser
from tests.support.cluster.adapted_service import CLAIM
from tests.support.cluster.adapter_folders import make_folders

from penstock.core.runtimes.paths import mounted_adapter_path
from penstock.demo.model import MODEL_NAME, ensure_model

ROOT = Path(__file__).parents[2]
NUM_ADAPTERS = 6


async def campaign(python: str, engines: int, within_s: float) -> bool:
    """Run the service in a cluster of its own. Returns whether all went well."""
    models = ensure_model(ROOT / "docs")
    find_vllm(python)
    with tempfile.TemporaryDirectory() as folder:
        adapters = make_folders(models / MODEL_NAME, Path(folder), NUM_ADAPTERS)
        with linked(Path(folder)):
            async with temporary_stage("vllm", models) as stage:
                record = await run(
                    stage, models / MODEL_NAME, adapters, engines=engines, within_s=within_s
                )
    record.print_table()
    return not record.faults


@contextmanager
def linked(folder: Path) -> Iterator[None]:
    """Link the adapters' path in engine pods to a folder while the block runs.

    The local cluster replaces paths in arguments, but not in requests. Raises OSError if the path exists.
    """
    path = Path(mounted_adapter_path(f"pvc://{CLAIM}/x")).parent
    path.parent.mkdir(parents=True)
    try:
        path.symlink_to(folder)
        yield
    finally:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
        path.parent.parent.rmdir()


if __name__ == "__main__":
    parser = option_parser(__doc__, engines=1)
    parser.add_argument("--python", default="3.12", help="version or path of vLLM's interpreter")
    parser.add_argument("--within", type=float, default=1200.0, help="seconds until Ready")
    options = parser.parse_args()
    sys.exit(0 if asyncio.run(campaign(options.python, options.engines, options.within)) else 1)
