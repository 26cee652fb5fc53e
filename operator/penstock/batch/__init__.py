"""The batch server: files and batches of tenants, whose lines it sends to the gateway."""
