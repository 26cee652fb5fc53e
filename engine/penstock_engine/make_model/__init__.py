"""Trains a small model on given texts, for demos and tests."""
