"""Incremental parsers: split generated text into reasoning, content and tool calls as it arrives."""
