"""Log output, traces and text formats of metrics, which engine and control plane share."""
