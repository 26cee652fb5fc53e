"""State that the requests of one gateway share."""
