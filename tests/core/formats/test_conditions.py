from penstock.core.formats.conditions import condition, conditions_by_type

READY = {"type": "Ready", "status": "False", "reason": "NoEngine"}
STALLED = {"type": "Stalled", "status": "True"}
STATUS = {"conditions": [READY, STALLED]}


def test_conditions_of_a_status():
    assert conditions_by_type(STATUS) == {"Ready": READY, "Stalled": STALLED}


def test_a_status_without_conditions_has_none():
    for status in (None, {}, {"conditions": None}, {"conditions": []}):
        assert conditions_by_type(status) == {}
        assert condition(status, "Ready") == {}


def test_condition_of_a_type_and_a_status():
    assert condition(STATUS, "Ready") == condition(STATUS, "Ready", "False") == READY
    assert condition(STATUS, "Ready", "True") == condition(STATUS, "RolledOut") == {}
