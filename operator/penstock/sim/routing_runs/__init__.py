"""Runs that compare rules of routing: scenarios, events and what comes of them."""
