"""Names and formats that clients and the control plane read: headers, metrics and log fields. Pure data."""
