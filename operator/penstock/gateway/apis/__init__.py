"""OpenAI's API as the gateway reads and writes it: requests, errors, models, responses.

The rows of the APIs are in core/routing/apis.py.
"""
