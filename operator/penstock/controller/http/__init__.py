"""Endpoints that the operator serves: health, metrics, recordings of scaling, placements of adapters."""
