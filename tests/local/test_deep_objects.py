"""Commands read objects that are nested as deeply as the API server accepts."""

import subprocess
import sys

PROGRAM = """
import json, sys
from penstock.cli.main import main
sys.argv = ["penstock", "--version"]
try:
    main()
except SystemExit:
    json.loads("[" * 10_000 + "]" * 10_000)
    print("parsed")
"""


def test_a_command_parses_objects_of_ten_thousand_levels() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "parsed"
