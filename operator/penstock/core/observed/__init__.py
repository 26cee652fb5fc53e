"""The observed state as frozen records: child objects, the stored rollout state, gateway reports."""
