"""Checks the server's flags without a running engine, for the preflight. Imports no torch."""

from pathlib import Path

from penstock_engine.core.errors import ModelError
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.server.requests.defaults import generation_defaults
from penstock_engine.text.template import read_template

ADAPTER_CONFIG = "adapter_config.json"


def check_options(config: EngineConfig, options: ServeOptions) -> None:
    """Check the default sampling parameters, the chat template and adapters. Raises ModelError."""
    generation_defaults(
        config.model_dir, options.generation_config, options.override_generation_config
    )
    if options.chat_template is not None:
        read_template(options.chat_template)
    if options.default_chat_template_kwargs:
        from penstock_engine.server.requests.chat_template import template_options  # takes seconds

        template_options(options)
    for module in options.adapters:
        if not (Path(module.path) / ADAPTER_CONFIG).is_file():
            message = f"--lora-modules {module.name}: the folder has no {ADAPTER_CONFIG}"
            raise ModelError("BadAdapter", message)
