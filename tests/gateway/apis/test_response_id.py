"""Ids of stored responses: the key of the engine's pod behind random digits."""

import json

from penstock.gateway.apis.response_id import key_of, name_response, pod_key


def test_an_id_has_the_key_of_the_pod():
    bodies = [
        json.loads(name_response(body, "default/engine-0", ""))
        for body in (b'{"model": "chat"}', b' {"model": "chat", "request_id": "mine"} \r\n')
    ]
    ids = [body.pop("request_id") for body in bodies]
    assert bodies == [{"model": "chat"}] * 2
    assert (
        {key_of(each) for each in ids} == {pod_key("default/engine-0", "")} == {"3f45f911ef48385b"}
    )
    assert ids[0][:53] != ids[1][:53]


def test_other_ids_have_no_key():
    key = pod_key("default/engine-0", "")
    assert key_of("resp_" + "0" * 48 + key) == key
    for other in (
        "", "resp_", key, "0" * 48 + key, "resp_" + "0" * 48, "resp_" + "0" * 47 + key,
        "resp_" + "0" * 48 + key.upper(), "resp_" + "0" * 48 + key + "\n", "resp_" + "g" * 48 + key,
    ):  # fmt: skip
        assert key_of(other) is None
