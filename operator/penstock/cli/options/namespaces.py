"""Command-line options for the namespaces of a service and of the operator."""

from typing import Annotated

import typer

from penstock.clients.kubernetes.kubeconfig import current_namespace

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", default_factory=current_namespace, show_default="the context's",
        help="Namespace of the service.",
    ),
]  # fmt: skip
OperatorNamespace = Annotated[str, typer.Option(help="Namespace of the operator.")]
