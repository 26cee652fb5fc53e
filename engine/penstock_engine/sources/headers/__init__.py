"""Reads of a source only what a check of the model needs: texts, and the headers of weights."""
