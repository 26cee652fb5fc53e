"""Runs commands; what they print goes to standard error, as standard output has the results."""

import subprocess
import sys


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def output(*command: str) -> str:
    """Run a command and return what it prints, without the line's end."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
