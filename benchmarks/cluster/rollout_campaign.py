"""Checks under load on a real cluster that bad releases are rolled back and good ones promoted.

.venv/bin/python -m benchmarks.cluster.rollout_campaign
"""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import torch
from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.options import option_parser
from safetensors.torch import load_file, save_file
from tests.support.cluster import rollouts

from penstock.core.spec.service import Object
from penstock.demo.load import End, corpus
from penstock.demo.model import LONG_TRAIN_STEPS, ensure_model

ROOT = Path(__file__).parents[2]
CANARY = {
    "minWeightPercent": 30,
    "maxWeightPercent": 40,
    "latencyTolerancePercent": 50,
    "errorTolerancePercent": 10,
    "violationTolerancePercent": 30,
    "maxDuration": "30m",
}


def releases(folder: Path, models: Path) -> list[tuple[str, str, Object]]:
    """Releases as (expected ending, description, change)."""
    model = models / "penstock-tiny"
    bad = [
        ("a model that is not there", rollouts.MISSING),
        ("a model that is cut short", rollouts.other_model(cut_short(model, folder / "cut"))),
        ("NaN weights", rollouts.other_model(corrupt(model, folder / "nan"))),
        ("answers without text", rollouts.other_model(silent(model, folder / "silent"))),
        ("crashes after a minute", rollouts.crashing(60)),
        ("prompts in steps of 16 tokens", rollouts.SLOW),
        ("a KV cache for a request or two", rollouts.SMALL),
        ("two ranks for a model that needs one", rollouts.SPREAD),
    ]
    good = [
        ("another seed", rollouts.GOOD),
        ("another label", rollouts.LABELED),
        ("larger steps", rollouts.ROOMIER),
    ]
    return [
        *(("Rejected", *each) for each in bad),
        *(("Stable", *each) for each in good),
    ]


def cut_short(model: Path, copy: Path) -> Path:
    """Truncate the weights: a valid header with half of the data."""
    shutil.copytree(model, copy)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    return copy


def corrupt(model: Path, copy: Path) -> Path:
    """Set a weight of the last layer to NaN."""
    shutil.copytree(model, copy)
    weights = load_file(copy / "model.safetensors")
    weights["model.norm.weight"][0] = torch.nan
    _save(weights, copy)
    return copy


def silent(model: Path, copy: Path) -> Path:
    """Make a model whose answers end at once: an end token is always the most probable."""
    shutil.copytree(model, copy)
    config = json.loads((copy / "config.json").read_text())
    ends = json.loads((copy / "generation_config.json").read_text())["eos_token_id"]
    weights = load_file(copy / "model.safetensors")
    head = torch.zeros_like(weights["model.embed_tokens.weight"])
    head[ends[0]], head[ends[1]] = 1e4, -1e4
    weights["lm_head.weight"] = head
    _save(weights, copy)
    (copy / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    return copy


def _save(weights: dict[str, torch.Tensor], folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # save_file makes it unreadable for other users, such as a pod's


async def run(names: list[str], clients: int, within_s: float) -> None:
    models = ensure_model(ROOT / "docs", steps=LONG_TRAIN_STEPS)
    with tempfile.TemporaryDirectory() as folder:
        made_releases = releases(Path(folder), models)
        expected = {title: end for end, title, _ in made_releases}
        chosen = [
            (title, change)
            for _, title, change in made_releases
            if not names or any(name in title for name in names)
        ]
        async with temporary_stage("rollouts", models) as stage:
            endings = await rollouts.campaign(
                stage, corpus(ROOT), chosen,
                rollout={"strategy": "Canary", "canary": CANARY, "progressDeadline": "120s"},
                clients=clients, within_s=within_s,
            )  # fmt: skip
    tell(endings, expected)


def tell(endings: list[rollouts.Ending], expected: dict[str, str]) -> None:
    """Print a table. Returns whether each release ended as expected."""
    print("\n| release | ended | after | requests | failed | met it | why |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for each in endings:
        total = sum(each.ends.values())
        failed = total - each.ends.get(End.DONE, 0)
        right = "" if each.phase == expected[each.name] else " (wrong)"
        print(
            f"| {each.name} | {each.phase}{right} | {each.took_s:.0f} s | {total} | {failed} | "
            f"{each.met} ({100 * each.met / max(1, total):.1f} %) | {each.reason} |"
        )
    wrong = [each.name for each in endings if each.phase != expected[each.name]]
    print(f"{len(endings) - len(wrong)} of {len(endings)} ended as they should", *wrong)


if __name__ == "__main__":
    parser = option_parser(__doc__, clients=4)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the titles of releases")
    parser.add_argument("--within", type=float, default=1500.0, help="seconds for each release")
    options = parser.parse_args()
    asyncio.run(run(options.only, options.clients, options.within))
