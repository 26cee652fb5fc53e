"""The gateway: a reverse proxy for LLM engines that speaks OpenAI's API."""
