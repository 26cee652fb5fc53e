"""The process and what its loops share: settings, signals, field managers, metrics, unexpected errors."""
