"""Draws the next tokens from logits, with the parameters of each request."""
