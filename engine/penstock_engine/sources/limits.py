"""Limits of a fetch: times, rates, sizes and numbers."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a fetch."""

    deadline_s: float = 3600.0  # of the whole fetch: 300 GB at 90 MB/s
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 30.0  # without a byte; load balancers give up after 60
    min_bytes_per_s: float = 32 * 1024.0  # of one connection; a model would take days at less
    rate_window_s: float = 30.0  # over which the rate of a connection is measured
    num_connections: int = 8  # one connection to an object store reaches 50 to 100 MB/s
    part_bytes: int = 16 * MIB  # of a range request; what a killed fetch loses for each connection
    max_attempts: int = 6  # at one range, without progress between them
    first_delay_s: float = 0.5  # before the second attempt; doubles
    max_delay_s: float = 30.0  # between attempts, if the server does not ask for more
    max_files: int = 10_000  # of a source; the largest models of the hub have some hundred
    max_file_name_bytes: int = 255  # of one name, as file systems have it
    max_path_bytes: int = 1024
    max_model_bytes: int = 8 << 40  # 8 TiB
    spare_bytes: int = 64 * MIB  # that have to stay free on the volume
    max_expansion: float = 20.0  # x the bytes of an archive; weights shrink by a third at most
    hold_s: float = 0.0  # for which the model stays in the cache, until `hold` starts
    cache_bytes: int | None = None  # limit of a cache; None: the volume is
