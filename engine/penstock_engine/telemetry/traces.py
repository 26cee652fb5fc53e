"""OpenTelemetry traces of gateway and engine: whether spans are exported, and by what.

OpenTelemetry's SDK is imported only if they are: it takes a second and megabytes.
"""

import logging
import os
import threading
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

EXPORT_TIMEOUT_S = 5
# Time for the export of the remaining spans when the process ends. A pod's grace period has little more.
CLOSE_TIMEOUT_S = 5

# Loggers whose warnings of malformed headers quote the client.
LOGGERS_OF_HEADERS = ("opentelemetry.trace.span", "opentelemetry.trace.propagation")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def is_enabled(endpoint: str | None = None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether spans are exported: there is an endpoint, and no OTEL_* variable turns them off."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return False
    return endpoint is not None or any(environment.get(name) for name in ENDPOINTS)


def make_provider(service_name: str, endpoint: str | None = None) -> "TracerProvider":
    """A provider that exports spans over OTLP/HTTP in the background.

    service_name: if no OTEL_* variable has another one. endpoint: URL that accepts spans, such as
    http://collector:4318/v1/traces; None: that of the variables, which also set the sampler, limits and
    headers.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    for name in LOGGERS_OF_HEADERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": service_name}))
    provider = TracerProvider(resource=resource)
    timeout_s = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else EXPORT_TIMEOUT_S
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=timeout_s)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def make_tracer(provider: "TracerProvider", name: str) -> "Tracer":
    """The provider's tracer for a part of Penstock. name: such as penstock.engine."""
    return provider.get_tracer(name, version("penstock"))


def close(provider: "TracerProvider") -> None:
    """Export the remaining spans, and give up after CLOSE_TIMEOUT_S.

    OpenTelemetry would wait for half a minute for a collector that does not answer.
    """
    export = threading.Thread(target=provider.shutdown, daemon=True)
    export.start()
    export.join(CLOSE_TIMEOUT_S)
