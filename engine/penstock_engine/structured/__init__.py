"""Structured output: grammars that constrain an answer, compiled off the event loop within limits."""
