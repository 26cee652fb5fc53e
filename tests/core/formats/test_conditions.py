from penstock.core.formats.conditions import conditions_by_type, find_condition

READY = {"type": "Ready", "status": "False", "reason": "NoEngine"}
STALLED = {"type": "Stalled", "status": "True"}
STATUS = {"conditions": [READY, STALLED]}


def test_conditions_of_a_status():
    assert conditions_by_type(STATUS) == {"Ready": READY, "Stalled": STALLED}


def test_a_status_without_conditions_has_none():
    for status in (None, {}, {"conditions": None}, {"conditions": []}):
        assert conditions_by_type(status) == {}
        assert find_condition(status, "Ready") == {}


def test_condition_of_a_type_and_a_status():
    assert find_condition(STATUS, "Ready") == find_condition(STATUS, "Ready", "False") == READY
    assert find_condition(STATUS, "Ready", "True") == find_condition(STATUS, "RolledOut") == {}
