"""The process' limit of open files (RLIMIT_NOFILE)."""

import resource


def allow_open_files(needed: int) -> int:
    """Raise the soft limit to `needed`, as far as the hard limit allows. Returns the files that may be open.

    The result is at most `needed`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return needed if soft == resource.RLIM_INFINITY else min(needed, soft)
