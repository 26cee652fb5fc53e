"""Admission of requests to engines: which go now, which wait in what order, and which are refused."""
