"""The schema of the LoraAdapter: its spec, its status, and the object."""
