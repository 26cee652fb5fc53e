"""Decides where a request goes: route, revision, admission, endpoint and retry."""
