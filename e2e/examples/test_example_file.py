"""The reader of examples: commands of comments, values of the chart, and Secrets that comments offer."""

from e2e.examples.example_file import ExampleFile


def test_a_command_gets_the_users_values() -> None:
    example = ExampleFile.read("model-sources/s3.yaml", {"https://minio.storage:9000": "http://s3"})
    values = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu"}
    (command,) = example.commands(values)
    assert command.replace("\\\n  ", "") == (
        "kubectl create secret generic models-bucket --from-literal=AWS_ACCESS_KEY_ID=key "
        "--from-literal=AWS_SECRET_ACCESS_KEY=secret --from-literal=AWS_REGION=eu "
        "--from-literal=AWS_ENDPOINT_URL=http://s3"
    )


def test_a_flag_gets_the_users_value() -> None:
    example = ExampleFile.read("model-sources/oci.yaml", {"registry.example.com": "127.0.0.1:5"})
    (command,) = example.commands({"docker-username": "reader", "docker-password": "secret"})
    assert command.replace("\\\n  ", "") == (
        "kubectl create secret docker-registry registry --docker-server=127.0.0.1:5 "
        "--docker-username=reader --docker-password=secret"
    )


def test_a_secret_that_a_comment_offers_is_made_if_it_is_taken() -> None:
    name = "model-sources/https.yaml"
    without, offered = ExampleFile.read(name, {}), ExampleFile.read(name, {}, with_secret=True)
    assert without.commands({}) == []
    assert offered.commands({}) == [
        "kubectl create secret generic downloads --from-file=.netrc --from-file=ca.crt"
    ]
    (service,) = offered.objects("InferenceService")
    assert service["spec"]["model"]["secretRef"] == {"name": "downloads"}


def test_the_charts_values_are_those_of_the_comment() -> None:
    example = ExampleFile.read("model-sources/node-cache.yaml", {})
    sources = {"enabled": True, "allowedSources": ["hf://Qwen/"]}
    assert example.chart_values() == {"nodeCache": sources}
