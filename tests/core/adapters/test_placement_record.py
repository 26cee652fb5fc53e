"""The record of a placement, as commands of this version read it from operators of this and earlier ones."""

import json

import pytest
from tests.core.adapters.pods import RESIDENT, replica

from penstock.core.adapters.placement_record import PlacementRecord, read_placement
from penstock.core.formats.serialization import serialize

RECORD = PlacementRecord("default/chat", 1000.5, (replica("chat-a", 4, {"a@1": RESIDENT}),), ())


@pytest.mark.parametrize("former", [{}, {"is_draining": False}], ids=["present", "earlier"])
def test_records_of_present_and_earlier_operators_are_read(former: dict[str, bool]) -> None:
    written = serialize(RECORD)
    written["replicas"][0] |= former
    assert read_placement(json.dumps(written)) == RECORD


def test_a_record_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="has no newer"):
        read_placement(json.dumps(serialize(RECORD) | {"newer": 1}))
