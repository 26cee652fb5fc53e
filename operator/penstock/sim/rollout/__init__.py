"""Canaries by the thousand: how often judges err, and how long they take."""
