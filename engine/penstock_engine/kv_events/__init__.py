"""Publishes changes of the prefix cache over ZeroMQ, in the format of vLLM 0.32."""
