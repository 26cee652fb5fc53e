"""Reads GGUF files: header, configuration, tensors and tokenizer."""
