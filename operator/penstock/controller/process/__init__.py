"""The process and what all of its loops share: settings, signals, metrics, unexpected errors."""
