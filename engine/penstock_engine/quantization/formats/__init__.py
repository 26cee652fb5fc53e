"""Formats of quantized checkpoints, one module for each, read into packed weights."""
