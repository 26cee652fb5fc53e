"""Termination messages of preflight pods."""

PASSED = '{"ok": true, "architecture": "Q", "weights_bytes": 1, "kv_capacity_tokens": 9}'
REFUSED = '{"ok": false, "reason": "ModelNotFound", "message": "no model"}'
