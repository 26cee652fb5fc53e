"""Text of a model -> reasoning, content and tool calls, as it arrives."""
