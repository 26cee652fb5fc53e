"""The `penstock` command of a version whose API has one more field: spec.engine.quantization.

    .venv/bin/python benchmarks/campaigns/next_version.py operator run …

The field changes pods, and status.engine reports it. Besides, engine pods have a longer preStop sleep.
"""

from dataclasses import make_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from pydantic import Field, create_model

NAME = "quantization"
PRE_STOP_S = 5
# The field's value in the status of a service that does not set it.
UNSET = "none"


def upgrade() -> None:
    """Patch penstock's modules to the next version. Call it before anything else imports them."""
    _extend_core()
    _extend_api()
    engine = import_module("penstock.core.manifests.engine")
    _replace(engine, PRE_STOP_S=PRE_STOP_S)
    convert = import_module("penstock.api.convert")
    read = convert._engine

    def read_with_field(engine: Any) -> dict[str, Any]:
        values: dict[str, Any] = read(engine)
        return values | {NAME: engine.quantization}

    _replace(convert, _engine=read_with_field)
    status = import_module("penstock.core.reconcile.status")
    render = status._engine

    def render_with_field(spec: Any) -> dict[str, Any]:
        values: dict[str, Any] = render(spec)
        return values | {NAME: spec.quantization or UNSET}

    _replace(status, _engine=render_with_field)


def _extend_core() -> None:
    service = import_module("penstock.core.spec.service")
    known, field = service.ServiceSpec, (NAME, str | None, None)
    record = make_dataclass(known.__name__, [field], bases=(known,), frozen=True, slots=True)
    _replace(service, ServiceSpec=record)
    fields = import_module("penstock.core.spec.fields")
    added = fields.RevisionField(f"engine.{NAME}", NAME, default=None)
    _replace(fields, REVISION_FIELDS=(*fields.REVISION_FIELDS, added))


def _extend_api() -> None:
    engine = import_module("penstock.api.engine")
    _replace(engine, Engine=_with_field(engine.Engine))
    status = import_module("penstock.api.status")
    reported = _with_field(status.EngineStatus)
    text = "Engine settings in effect, from the spec or by default."
    whole = create_model(
        "InferenceServiceStatus",
        __base__=status.InferenceServiceStatus,
        engine=(reported | None, Field(default=None, description=text)),
    )
    _replace(status, EngineStatus=reported, InferenceServiceStatus=whole)


def _with_field(model: Any) -> Any:
    described = Field(default=None, description="Number format of quantized weights.")
    return create_model(model.__name__, __base__=model, quantization=(str | None, described))


def _replace(module: ModuleType, **values: object) -> None:
    vars(module).update(values)


if __name__ == "__main__":
    upgrade()
    import_module("penstock.cli.main").main()
