"""Schema of spec.runtime: the program that serves the model."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.lists import argument_list
from penstock.api.schema.rules import Model, Obeys, Rule, matches
from penstock.core.runtimes.custom import READINESS_PATH
from penstock.core.runtimes.vllm import IMAGE as VLLM_IMAGE


class VLLMRuntime(Model):
    """Settings of runtime VLLM."""

    image: str | None = optional(
        f"Container image with vLLM. Default: {VLLM_IMAGE}.", min_length=1, max_length=512
    )


class CustomMetrics(Model):
    """Metrics of a custom runtime."""

    dialect: Literal["VLLM"] = Field(
        description=(
            "Names of the metrics at /metrics. VLLM: those of vLLM, such as vllm:num_requests_running."
        )
    )


class CustomRuntime(Model):
    """A server of your own with the routes of the OpenAI API."""

    image: str = Field(
        description="Container image of the server, such as registry.example/server:1.2.",
        min_length=1,
        max_length=512,
    )
    command: list[Annotated[str, Field(max_length=4096)]] = argument_list(
        "Command of the container. Default: the image's entry point."
    )
    args: list[Annotated[str, Field(max_length=4096)]] = argument_list(
        "Arguments of the command. $(MODEL_PATH), $(MODEL_NAME), $(POD_IP) and $(PORT) are replaced; the "
        "server must listen on this port of the pod, such as --port=$(PORT)."
    )
    readiness_path: Annotated[
        str | None, Obeys(matches(r"^/[-A-Za-z0-9._~/]*$", "must be a path such as /health"))
    ] = optional(
        "Path that answers GET with status 200 once the model is loaded, and while the server is "
        f"alive. Default: {READINESS_PATH}.",
        max_length=256,
    )
    metrics: CustomMetrics | None = optional(
        "Metrics from which the service is scaled. Without them scaling.mode must be External."
    )


class Runtime(Model):
    """The program that serves the model."""

    RULES = (
        Rule(
            "has(self.custom) == (self.type == 'Custom')",
            lambda runtime: (runtime.custom is not None) == (runtime.type == "Custom"),
            "spec.runtime.custom must be set with type Custom, and with no other",
        ),
        Rule(
            "!has(self.vllm) || self.type == 'VLLM'",
            lambda runtime: runtime.vllm is None or runtime.type == "VLLM",
            "spec.runtime.vllm requires type VLLM; remove it, or set the type",
        ),
    )

    type: Literal["Penstock", "VLLM", "Custom"] = Field(
        description=(
            "Penstock: penstock-engine. VLLM: vllm serve. Custom: a server of your own with the routes of "
            "the OpenAI API."
        )
    )
    vllm: VLLMRuntime | None = optional("Settings of type VLLM.")
    custom: CustomRuntime | None = optional("Settings of type Custom.")
