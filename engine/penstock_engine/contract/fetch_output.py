"""Output of `penstock-engine fetch` that other programs use: its exit codes, and its progress in words."""

SUCCEEDED = 0
FAILED = 1  # the same fetch fails again until something is changed
FAILED_FOR_NOW = 75  # the same fetch may succeed later; EX_TEMPFAIL of sysexits.h

GIB, MIB = 1 << 30, 1 << 20
LEAST_WHOLE_RATE = 10  # MiB/s; lower rates are shown with a decimal


def progress_text(done_bytes: int, total_bytes: int, bytes_per_s: float) -> str:
    """The progress of a fetch, such as `3.1 of 14.2 GiB, 210 MiB/s, 55 s left`."""
    unit, name = (GIB, "GiB") if total_bytes >= GIB else (MIB, "MiB")
    amount = f"{done_bytes / unit:.1f} of {total_bytes / unit:.1f} {name}"
    if bytes_per_s <= 0:
        return f"{amount}, nothing arrives"
    rate, left_s = bytes_per_s / MIB, max(0, total_bytes - done_bytes) / bytes_per_s
    decimals = 0 if rate >= LEAST_WHOLE_RATE else 1
    return f"{amount}, {rate:.{decimals}f} MiB/s, {left_s:.0f} s left"
