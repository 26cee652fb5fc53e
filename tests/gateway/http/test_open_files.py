"""The number of client connections within the limit of open files."""

import resource
import subprocess
import sys

import pytest

from penstock.gateway.http.open_files import connections_within_limit

PROGRAM = """
import resource, sys
from penstock.gateway.http.open_files import connections_within_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(connections_within_limit(200, 128), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (1024, 1024, "200 1024 1024"),
        (128, 1024, "200 592 1024"),  # 192 and two for each
        (128, 392, "100 392 392"),
        (64, 64, "1 64 64"),
    ],
)
def test_connections_within_the_limit_of_open_files(soft, hard, expected):
    command = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "expected", "limits"),
    [
        (INFINITE, INFINITE, 200, []),
        (128, INFINITE, 200, [(592, INFINITE)]),
        (592, 9999, 200, []),
        (591, 9999, 200, [(592, 9999)]),
        (592, 592, 200, []),
        (100, 591, 199, [(591, 591)]),
        (100, 196, 2, [(196, 196)]),
        (100, 195, 1, [(195, 195)]),
        (100, 193, 1, [(193, 193)]),
        (100, 100, 1, [(100, 100)]),
    ],
)
def test_soft_limit_is_raised_as_far_as_needed(monkeypatch, soft, hard, expected, limits):
    """Linux does not allow infinite limits."""
    made = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: made.append(wanted))
    assert connections_within_limit(200, 128) == expected
    assert made == limits
