"""Copies of LoRA adapters on engines: where they are, and loads on demand."""
