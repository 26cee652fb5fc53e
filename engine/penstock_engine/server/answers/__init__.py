"""OpenAI's JSON of answers, whole and as streams."""
