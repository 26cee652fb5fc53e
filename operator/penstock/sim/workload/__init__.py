"""Generated requests: their arrivals, and the lengths of prompts and answers."""
