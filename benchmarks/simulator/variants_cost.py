"""Compares the cost of a mix of variants with each variant alone, at equal load, objectives and rule.

    python -m benchmarks.simulator.variants_cost [--scenario two-variants] [--others keda-queue-guard]

For each choice of variants it prints the mean over seeds of

    attainment   share of arrivals within both objectives
    cost         of pods from when they hold GPUs until they are removed
    saved        by the mix, relative to this choice, paired by seed, with its 95 % interval
    moves        changes of the desired replicas

Rules without variants get the cheapest replicas first, as in llm-d's WVA.
"""

from collections.abc import Sequence

from benchmarks.options import option_parser
from rich.console import Console
from rich.table import Table

from penstock.sim import scenario
from penstock.sim.report import Estimate, Summary, summaries_of
from penstock.sim.run import run

OURS = "penstock"


def main() -> None:
    parser = option_parser(__doc__, scenario="two-variants", seeds=10)
    parser.add_argument("--others", nargs="*", default=[])
    args = parser.parse_args()
    whole = scenario.load(args.scenario)
    [service] = whole.services
    choices = {("all", OURS): whole}
    for variant, alone in zip(service.variants, service.alone, strict=True):
        only = whole.model_copy(update={"services": (alone,)})
        choices[(f"{variant.name} alone", OURS)] = only
    for policy in args.others:
        choices[("all", policy)] = whole
    table = Table("variants", "rule", "attainment", "cost", "saved by the mix", "moves")
    mixed: list[Summary] = []
    for (name, policy), chosen in choices.items():
        summaries = [summaries_of(run(chosen, policy, seed))[0] for seed in range(args.seeds)]
        mixed = mixed or summaries
        table.add_row(name, policy, *formatted(summaries, mixed))
    Console(width=110).print(table)


def formatted(summaries: Sequence[Summary], mixed: Sequence[Summary]) -> list[str]:
    met, cost = (
        Estimate.of(values)
        for values in ([s.attainment for s in summaries], [s.cost for s in summaries])
    )
    saved = Estimate.of(
        1 - mix.cost / other.cost for mix, other in zip(mixed, summaries, strict=True)
    )
    moves = Estimate.of(s.scale_ups + s.scale_downs for s in summaries)
    return [
        f"{met.mean:.2%} ± {met.ci95:.2%}",
        f"{cost.mean:.2f} ± {cost.ci95:.2f}",
        "" if summaries is mixed else f"{saved.mean:.1%} ± {saved.ci95:.1%}",
        f"{moves.mean:.1f}",
    ]


if __name__ == "__main__":
    main()
