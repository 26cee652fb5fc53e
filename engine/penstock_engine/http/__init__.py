"""HTTP/1.1 for uvicorn within limits on time, heads and connections, which engine and gateway share."""
