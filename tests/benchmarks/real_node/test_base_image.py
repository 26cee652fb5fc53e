"""The base image made of Debian's packages: from which of apt's archives they come."""

import pytest
from benchmarks.real_node.base_image import Archive, archives

INDEXES = """\
http://mirror.example/debian/ bookworm-updates Debian main
http://mirror.example/debian/ bookworm Debian main
http://mirror.example/debian/ bookworm Debian contrib
http://mirror.example/security/ bookworm-security Debian main
http://mirror.example/debian/ trixie Debian main
http://tools.example/ bookworm Tools main
http://tools.example/ nodistro  main
"""


def test_debian_and_its_updates_are_taken() -> None:
    assert archives(INDEXES) == [
        Archive("http://mirror.example/debian/", "bookworm"),
        Archive("http://mirror.example/security/", "bookworm-security"),
        Archive("http://mirror.example/debian/", "bookworm-updates"),
    ]


def test_another_debian_is_refused() -> None:
    with pytest.raises(SystemExit, match="apt knows no archive of Debian bookworm"):
        archives(INDEXES.replace(" bookworm ", " trixie "))
