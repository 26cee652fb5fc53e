"""Reads bodies and writes answers within limits: errors, JSON, deadlines, disconnected clients."""
