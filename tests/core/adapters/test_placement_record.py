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


def test_an_adapter_may_have_the_name_of_the_former_field() -> None:
    named = replica("chat-a", 4, {"is_draining": RESIDENT})
    record = PlacementRecord("default/chat", 1000.5, (named,), ())
    assert read_placement(json.dumps(serialize(record))) == record


@pytest.mark.parametrize("replicas", [None, 1, [1], {"a": 1}])
def test_a_record_without_a_list_of_replicas_is_refused(replicas: object) -> None:
    with pytest.raises(ValueError, match="replicas"):
        read_placement(json.dumps(serialize(RECORD) | {"replicas": replicas}))


def test_a_record_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="has no newer"):
        read_placement(json.dumps(serialize(RECORD) | {"newer": 1}))
