"""The `penstock` command: a table of sub-commands, each imported only when it is called.

An installation may have a single extra (operator, gateway, …), so imports of one sub-command must not
be needed for another. A module has either `app` (a group of commands) or `command` (a function).
"""

import gc
import os
import sys
from importlib import import_module
from importlib.metadata import version

import typer

from penstock.clients.kubernetes.deep_objects import allow_deep_objects

# Headings of the help text, each for one kind of reader.
USE = "Use"
OPERATE = "Operate"
DEVELOP = "Develop: generated files of the repository"

# Name -> heading, module of this package, text.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": (USE, "demo", "Show scaling and a rollout on a local cluster, then remove it."),
    "local": (USE, "local", "Run a real Kubernetes control plane as plain processes."),
    "adapters": (
        USE,
        "adapters.command",
        "Show where LoRA adapters are loaded, their demand, and why.",
    ),
    "explain": (
        USE,
        "scaling.explain",
        "Explain why a service has its number of replicas, and what would change it.",
    ),
    "keys": (USE, "keys.commands", "Create, list, rotate and revoke API keys of tenants."),
    "record": (USE, "scaling.record", "Record a service's scaling observations and decisions."),
    "replay": (
        USE,
        "scaling.replay",
        "Replay recorded decisions with the same scaling rule or another.",
    ),
    "rollout": (USE, "rollout.commands", "Show and control the rollout of a new revision."),
    "simulate": (USE, "simulation.scaling", "Simulate scaling or adapter placement."),
    "simulate-rollout": (
        USE,
        "simulation.rollout",
        "Simulate canaries to measure a judge's error rates.",
    ),
    "calibrate": (
        USE,
        "simulation.calibrate",
        "Measure a running engine and write a profile for the simulator.",
    ),
    "usage": (
        USE,
        "usage.command",
        "Show what tenants have used, and what it costs.",
    ),
    "manifests": (
        OPERATE,
        "manifests",
        "Print the manifests that install Penstock, for kubectl apply.",
    ),
    "batch": (OPERATE, "servers.batch", "Run the server of files and batches."),
    "gateway": (OPERATE, "servers.gateway", "Run the OpenAI-compatible gateway."),
    "operator": (OPERATE, "servers.operator", "Run the operator."),
    "chart": (DEVELOP, "generated.chart", "Write the Helm chart, or check it."),
    "crds": (DEVELOP, "generated.crds", "Write the CustomResourceDefinitions, or check them."),
    "dashboards": (
        DEVELOP,
        "generated.dashboards",
        "Write the dashboards for Grafana, or check them.",
    ),
    "docs": (DEVELOP, "generated.docs", "Write the generated reference pages, or check them."),
}


def _unloaded() -> None:
    """Placeholder in the help text for a sub-command that is not imported in this call."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


def _root(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Serve language models on Kubernetes within latency objectives."""


def build(wanted: str | None) -> typer.Typer:
    """Build the command tree, importing only the sub-command `wanted`."""
    root = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
    root.callback()(_root)
    for name, (panel, path, text) in COMMANDS.items():
        module = import_module(f"penstock.cli.{path}") if name == wanted else None
        if module is not None and hasattr(module, "app"):
            root.add_typer(module.app, name=name, help=text, rich_help_panel=panel)
        else:
            command = module.command if module else _unloaded
            root.command(name, help=text, rich_help_panel=panel)(command)
    return root


def _words() -> list[str]:
    """Words of the command line, or of the line that a shell completes."""
    if "_PENSTOCK_COMPLETE" not in os.environ:
        return sys.argv
    # typer's scripts set _TYPER_COMPLETE_ARGS in zsh and fish, and COMP_WORDS in bash.
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return line.split()


def main() -> None:
    words = _words()
    wanted = words[1] if len(words) > 1 else None
    gc.disable()  # imported objects stay alive: collecting takes a third of the start-up time
    allow_deep_objects()
    tree = build(wanted)
    gc.freeze()
    gc.enable()
    tree()
