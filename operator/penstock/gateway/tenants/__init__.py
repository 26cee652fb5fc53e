"""Who sends a request: its tenant, and how the client proved to belong to it."""
