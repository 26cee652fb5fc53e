"""The `penstock` command of a version whose API has one more field: spec.engine.sparsity.

    .venv/bin/python benchmarks/cluster/campaigns/next_version.py operator run …

The field changes pods, and status.engine reports it. Besides, engine pods have a longer preStop sleep.
"""

from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from pydantic import Field, create_model

NAME = "sparsity"
PRE_STOP_S = 5
# The field's value in the status of a service that does not set it.
UNSET = "none"


def upgrade() -> None:
    """Patch penstock's modules to the next version. Call it before anything else imports them."""
    _extend_api()
    runtimes = import_module("penstock.core.runtimes.penstock")
    # Engines of this version have no such flag; the value is a variable of the pod instead.
    taken = import_module("penstock.core.runtimes.runtime").Argument(
        (f"engine.{NAME}",), (), lambda _: []
    )
    made = replace(runtimes.RUNTIME, arguments=(*runtimes.ARGUMENTS, taken))
    _replace(runtimes, RUNTIME=made)
    _replace(import_module("penstock.core.manifests.engine_pod"), PRE_STOP_S=PRE_STOP_S)
    status = import_module("penstock.core.reconcile.status")
    render = status.engine_status

    def render_with_field(spec: Any, *others: Any) -> dict[str, Any]:
        values: dict[str, Any] = render(spec, *others)
        return values | {NAME: spec.settings.get(f"engine.{NAME}", UNSET)}

    _replace(status, engine_status=render_with_field)


def _extend_api() -> None:
    engine = import_module("penstock.api.inferenceservice.engine")
    _replace(engine, Engine=_with_field(engine.Engine))
    status = import_module("penstock.api.inferenceservice.status")
    reported = _with_field(status.EngineStatus)
    text = "Engine settings in effect: of the spec, of the check of the model, or by default."
    whole = create_model(
        "InferenceServiceStatus",
        __base__=status.InferenceServiceStatus,
        engine=(reported | None, Field(default=None, description=text)),
    )
    _replace(status, EngineStatus=reported, InferenceServiceStatus=whole)


def _with_field(model: Any) -> Any:
    described = Field(default=None, description="Pattern of zeros in the weights.")
    return create_model(model.__name__, __base__=model, sparsity=(str | None, described))


def _replace(module: ModuleType, **values: object) -> None:
    vars(module).update(values)


if __name__ == "__main__":
    upgrade()
    import_module("penstock.cli.main").main()
