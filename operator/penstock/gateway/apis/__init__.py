"""What the gateway reads and writes of OpenAI's API: requests, errors, models, responses."""
