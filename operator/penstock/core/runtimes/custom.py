"""Runtime Custom: the user's own server, with the routes of the OpenAI API."""

from penstock.core.runtimes.paths import MODEL_MOUNT, mounted_path
from penstock.core.runtimes.runtime import Runtime
from penstock.core.spec.service import ENGINE_PORT, Object, ServiceSpec
from penstock.core.spec.settings import CUSTOM, Settings

READINESS_PATH = "/health"


def environment(spec: ServiceSpec) -> list[Object]:
    """Variables to which the command and its arguments can refer, as in $(MODEL_PATH)."""
    return [
        {"name": "MODEL_PATH", "value": mounted_path(spec.model_uri, MODEL_MOUNT)},
        {"name": "MODEL_NAME", "value": spec.model_name},
        {"name": "PORT", "value": str(ENGINE_PORT)},
    ]


def runtime(settings: Settings) -> Runtime:
    """The runtime of spec.runtime.custom."""
    path = settings.get("runtime.custom.readinessPath", READINESS_PATH)
    args = list(settings.get("runtime.custom.args", ()))
    return Runtime(
        name=CUSTOM,
        image=settings["runtime.custom.image"],
        command=tuple(settings.get("runtime.custom.command", ())),
        arguments=(),
        reserved_flags={},
        takes_extra_args=False,
        fixed_args=lambda _: args,
        environment=environment,
        readiness_path=path,
        liveness_path=path,
        startup_s=1800,
    )
