"""Answers that must have a form: grammars, compiled off the event loop and within limits."""
