"""The engine speaks of its own flags: a user without a control plane has no fields to set."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIELDS = re.compile(
    r"\bspec\.(?:engine|model|resources|runtime|template|terminationGrace)\b|InferenceService"
)


def test_the_engine_names_no_field_of_the_control_plane() -> None:
    sources = sorted((ROOT / "engine").rglob("*.py"))
    named = [
        f"{file.relative_to(ROOT)}: {found[0]}"
        for file in sources
        for found in FIELDS.finditer(file.read_text())
    ]
    assert len(sources) > 200
    assert named == []
