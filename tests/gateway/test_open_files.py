"""Connections of clients fit into the open files that the process may have."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from penstock.gateway.open_files import connections_within_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(connections_within_limit(200), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (1024, 1024, "200 1024 1024"),
        (128, 1024, "200 528 1024"),  # 128 and two for each
        (128, 328, "100 328 328"),
        (64, 64, "1 64 64"),
    ],
)
def test_connections_within_the_limit_of_open_files(soft, hard, expected):
    command = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
