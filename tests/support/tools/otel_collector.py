"""Finds an OpenTelemetry collector, or builds one from its Go modules."""

from collections.abc import Callable
from pathlib import Path

from penstock.local.go_tool import ensure_tool
from penstock.local.gobuild import GO_VERSION, Go

NAME = "otelcol"
OTEL_COLLECTOR = "0.165.0"
OTEL_COLLECTOR_FILE = "0.165.1"  # of its file exporter
OTEL_COLLECTOR_STABLE = "1.71.0"  # of its modules that have reached version 1

GO_MOD = f"""module penstock.local/otelcol

go {GO_VERSION}

require (
	github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter v{OTEL_COLLECTOR_FILE}
	go.opentelemetry.io/collector/confmap/provider/envprovider v{OTEL_COLLECTOR_STABLE}
	go.opentelemetry.io/collector/confmap/provider/fileprovider v{OTEL_COLLECTOR_STABLE}
	go.opentelemetry.io/collector/otelcol v{OTEL_COLLECTOR}
	go.opentelemetry.io/collector/receiver/otlpreceiver v{OTEL_COLLECTOR}
)
"""

# A collector with the OTLP receiver and the file exporter.
MAIN = """package main

import (
	"log"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func factories() (otelcol.Factories, error) {
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	if err != nil {
		return otelcol.Factories{}, err
	}
	exporters, err := otelcol.MakeFactoryMap[exporter.Factory](fileexporter.NewFactory())
	return otelcol.Factories{
		Receivers: receivers,
		Exporters: exporters,
		Telemetry: otelconftelemetry.NewFactory(),
	}, err
}

func main() {
	providers := []confmap.ProviderFactory{envprovider.NewFactory(), fileprovider.NewFactory()}
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Version: "%s"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{ProviderFactories: providers},
		},
	})
	if err := command.Execute(); err != nil {
		log.Fatal(err)
	}
}
"""


def ensure_otel_collector(say: Callable[[str], None]) -> Path:
    """Return the path of an `otelcol` binary that can receive OTLP and write files.

    say: called before each slow step. Raises BuildFailed.
    """
    return ensure_tool(NAME, OTEL_COLLECTOR, _build, say)


def _build(work: Path, folder: Path) -> None:
    source = work / "source"
    source.mkdir()
    (source / "go.mod").write_text(GO_MOD)
    (source / "main.go").write_text(MAIN % OTEL_COLLECTOR)
    # `go mod tidy` would also download the dependencies of the modules' tests.
    go = Go(work)
    go(source, "build", "-mod=mod", "-ldflags", "-s -w", "-o", str(folder / NAME), ".")
