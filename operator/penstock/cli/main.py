"""The `penstock` command: one table of sub-commands, each imported only when it is called.

Images install one extra each (operator, gateway, …), so what a sub-command imports must not be
needed by its neighbours. A module offers `app` (a group of commands) or `command` (a function).
"""

import gc
import sys
from importlib import import_module
from importlib.metadata import version

import typer

COMMANDS: dict[str, tuple[str, str]] = {
    "calibrate": ("penstock.cli.calibrate", "Measure a running engine, for the simulator."),
    "crds": ("penstock.cli.crds", "Write the CustomResourceDefinitions, or check them."),
    "demo": ("penstock.cli.demo", "Tell the whole story on a local cluster, then remove it."),
    "docs": ("penstock.cli.docs", "Write the generated reference pages, or check them."),
    "explain": (
        "penstock.cli.explain",
        "Why a service has so many replicas, and what would change it.",
    ),
    "gateway": ("penstock.cli.gateway", "The OpenAI-compatible front door."),
    "local": ("penstock.cli.local", "A real Kubernetes control plane as plain processes."),
    "manifests": ("penstock.cli.manifests", "Print everything a cluster needs, for kubectl apply."),
    "operator": ("penstock.cli.operator", "The controller."),
    "record": ("penstock.cli.record", "Write down what a service's scaler sees and decides."),
    "replay": ("penstock.cli.replay", "Decide a recording again, by its own rule or another."),
    "rollout": ("penstock.cli.rollout", "A new revision on its way: look, and have a say."),
    "simulate": ("penstock.cli.simulate", "A scaling policy on simulated engines."),
    "simulate-rollout": ("penstock.cli.simulate_rollout", "Judge canaries by the thousand."),
}


def _unloaded() -> None:
    """Stands in the help text for a command that this call did not ask for."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


def _root(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Language models on Kubernetes, held to latency objectives by one loop."""


def build(wanted: str | None) -> typer.Typer:
    """The command tree with only the sub-command `wanted` imported."""
    root = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    root.callback()(_root)
    for name, (path, text) in COMMANDS.items():
        module = import_module(path) if name == wanted else None
        if module is not None and hasattr(module, "app"):
            root.add_typer(module.app, name=name, help=text)
        else:
            root.command(name, help=text)(module.command if module else _unloaded)
    return root


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else None
    gc.disable()  # what is imported stays: to look for cycles in it takes a third of the time
    if wanted == "simulate":  # before anything of the simulator is imported
        import_module("penstock.sim.compiled").prefer(sys.argv)
    tree = build(wanted)
    gc.freeze()
    gc.enable()
    tree()
