"""Settings of a batch server."""

from dataclasses import dataclass
from pathlib import Path

from penstock.chart.names import BATCH_MANAGEMENT_PORT, BATCH_PORT
from penstock.core.batches.records import MAX_FILE_BYTES
from penstock.core.routing.gateway_defaults import MAX_BODY_BYTES, TOTAL_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    # URL of the gateway that gets the lines, such as http://penstock-gateway.penstock-system.
    gateway_url: str
    # PEM file of the authorities of the gateway's certificate. None, or no such file: those of the system.
    gateway_ca_file: Path | None = None
    # File with the secret that gateways and this server share.
    token_file: Path
    # A folder, or the URL of a bucket with an optional prefix: s3://bucket/prefix.
    store: str

    # Port 0: a free one. The management port has probes and metrics.
    host: str = "0.0.0.0"  # noqa: S104 - manifests give the pod's own address
    port: int = BATCH_PORT
    management_port: int = BATCH_MANAGEMENT_PORT

    max_file_bytes: int = MAX_FILE_BYTES
    # Bounds of one tenant: stored files, their total size, batches that are not deleted, and those of them
    # that run. An open file or batch takes half a kilobyte of memory.
    max_tenant_bytes: int = 10 << 30
    max_tenant_files: int = 1000
    max_tenant_batches: int = 1000
    max_running_batches: int = 50
    # s: files, and batches that have ended, are deleted this long after their creation.
    retention_s: int = 30 * 24 * 3600

    # Lines of all batches that are at the gateway at a time. One tenant may have half of those that others
    # leave: as many as a replica runs sequences by default.
    max_lines: int = 512
    # Memory in bytes of lines and answers that are at the gateway or wait to be sent again. One tenant may
    # have half of what others leave: 32 of the longest lines.
    line_memory_bytes: int = 256 << 20
    # Longer lines are refused, as the gateway would refuse their bodies.
    max_line_bytes: int = MAX_BODY_BYTES
    # Time limit of a line at the gateway: a minute more than the gateway's own, which says what was late.
    line_timeout_s: float = TOTAL_TIMEOUT_S + 60
    # Time after SIGTERM for lines that run to be answered. Others are sent again by the next process.
    drain_timeout_s: float = 20.0
