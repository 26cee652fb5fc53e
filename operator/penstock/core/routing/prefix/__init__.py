"""Which prompts begin alike, and which engines have computed their beginnings."""
