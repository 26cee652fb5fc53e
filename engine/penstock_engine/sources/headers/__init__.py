"""Reads only the parts of a source that a check of the model needs: texts, and the headers of weights."""
