"""Bad releases are rolled back by themselves, good ones promoted, under load, on a real cluster.

.venv/bin/python benchmarks/rollout_campaign.py
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from penstock.adapters.kube import connect
from penstock.demo import rollouts
from penstock.demo.campaigns import corpus
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage, models_claim
from penstock.local import cluster as clusters
from penstock.local.install import install

ROOT = Path(__file__).parents[1]
CANARY = {
    "minWeight": 0.3,
    "maxWeight": 0.4,
    "tolerance": 0.5,
    "errorTolerance": 0.1,
    "violationTolerance": 0.3,
    "maxDuration": "30m",
}


def releases(folder: Path, models: Path) -> list[tuple[str, dict]]:
    corrupt = folder / "corrupt"
    corrupt.mkdir()
    for file in (models / "penstock-tiny").iterdir():
        content = file.read_bytes()
        # The headers are as they should be, the numbers are not.
        if file.suffix == ".safetensors":
            content = content[: len(content) // 2]
        (corrupt / file.name).write_bytes(content)
    return [
        ("a model that is not there", rollouts.MISSING),
        ("a model that is cut short", {"model": {"uri": f"file://{corrupt}"}}),
        ("crashes after a minute", rollouts.crashing(60)),
        ("prompts in steps of 16 tokens", rollouts.SLOW),
        ("another seed", rollouts.GOOD),
    ]


async def run(names: list[str], clients: int, within_s: float) -> None:
    models = ensure_model(ROOT / "docs", seconds=60)
    made = clusters.up("rollouts", say=lambda _: None)
    try:
        await install(made, say=lambda _: None)
        with tempfile.TemporaryDirectory() as folder:
            chosen = [
                (title, change)
                for title, change in releases(Path(folder), models)
                if not names or any(name in title for name in names)
            ]
            async with await connect(made.kubeconfig) as kube:
                stage = Stage(made, kube)
                stage.kubectl("apply", "-f", "-", stdin=models_claim(models))
                try:
                    await rollouts.campaign(
                        stage, corpus(ROOT), chosen,
                        rollout={"strategy": "Canary", "canary": CANARY, "progressDeadline": "120s"},
                        clients=clients, within_s=within_s,
                    )  # fmt: skip
                finally:
                    await stage.close()
    finally:
        clusters.down("rollouts")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the titles of releases")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--within", type=float, default=1500.0, help="seconds for each release")
    options = parser.parse_args()
    asyncio.run(run(options.only, options.clients, options.within))
