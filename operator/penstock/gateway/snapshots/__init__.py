"""The routing snapshot, and how it follows the objects of the API server."""
