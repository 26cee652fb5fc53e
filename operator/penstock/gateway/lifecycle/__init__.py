"""The phases of one request, and its cancellation."""
