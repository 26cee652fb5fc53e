"""OpenAI's API as the gateway reads and writes it: requests, errors, models, responses."""
