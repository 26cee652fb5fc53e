"""Limits of a fetch in tests."""

from penstock_engine.sources.limits import FetchLimits

# Short times, so that what has to be waited for comes soon.
QUICK = FetchLimits(
    deadline_s=60.0,
    connect_timeout_s=2.0,
    read_timeout_s=1.0,
    min_bytes_per_s=4096.0,
    rate_window_s=0.5,
    num_connections=4,
    part_bytes=32_768,
    max_attempts=3,
    first_delay_s=0.01,
    max_delay_s=0.02,
    spare_bytes=0,
)
