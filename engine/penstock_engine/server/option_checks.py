"""Checks the server's flags without a running engine, for the preflight. Imports no torch."""

from penstock_engine.config import EngineConfig
from penstock_engine.serve_options import ServeOptions
from penstock_engine.server.defaults import generation_defaults
from penstock_engine.template import read_template


def check_options(config: EngineConfig, options: ServeOptions) -> None:
    """Check the default sampling parameters and the chat template. Raises ModelError."""
    generation_defaults(
        config.model_dir, options.generation_config, options.override_generation_config
    )
    if options.chat_template is not None:
        read_template(options.chat_template)
    if options.default_chat_template_kwargs:
        from penstock_engine.server.chat_template import template_options  # takes seconds

        template_options(options)
