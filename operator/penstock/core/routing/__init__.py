"""Decides where a request goes: route, revision, admission, endpoint and retry.

Imports spec and formats.
"""
