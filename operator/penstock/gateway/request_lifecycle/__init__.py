"""Phases of one request with their times, and its cancellation."""
