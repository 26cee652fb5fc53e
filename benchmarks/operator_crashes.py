"""The operator killed before and after each of its first ten writes: the same end state every time.

python benchmarks/operator_crashes.py [--moments 20]
"""

import argparse
import asyncio
import sys
from pathlib import Path

from penstock.adapters.kube import NAMESPACES, connect
from penstock.api.crdgen import inference_service_crd
from penstock.demo.crashes import MOMENTS, Moment, survive
from penstock.demo.model import ensure_model
from penstock.local import cluster as clusters

ROOT = Path(__file__).parents[1]


async def campaign(count: int) -> bool:
    models = ensure_model(ROOT / "docs", seconds=60)
    spec = {
        "model": {"uri": f"file://{models}/penstock-tiny"},
        "engine": {"maxModelLen": 256, "kvCache": {"memory": "8Mi"}},
        "resources": {"memory": "1Gi"},
    }
    cluster = clusters.up("operator-crashes", say=print)
    same = 0
    try:
        async with await connect(cluster.kubeconfig) as kube:
            await kube.apply(inference_service_crd(), manager="benchmark")
            reference: dict[str, object] | None = None
            for number, moment in enumerate((Moment(0, after=False), *MOMENTS[:count])):
                namespace = f"crash-{number}"
                body = {"metadata": {"name": namespace}}
                await kube.create(NAMESPACES, None, body)
                await asyncio.sleep(1)
                state = await survive(cluster, kube, namespace, moment, spec)
                reference = reference or state
                same += moment.number > 0 and state == reference
                verdict = "same end state" if state == reference else f"differs: {state}"
                print(f"killed {moment}: {verdict}" if moment.number else f"undisturbed: {state}")
                await kube.delete(NAMESPACES, None, namespace)
    finally:
        clusters.down(cluster.name)
    print(f"{same} of {count} moments end in the same state")
    return same == count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=len(MOMENTS))
    sys.exit(0 if asyncio.run(campaign(parser.parse_args().moments)) else 1)
