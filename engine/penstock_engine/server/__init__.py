"""The engine's HTTP server: routes of OpenAI, Anthropic and vLLM around the engine's thread."""
