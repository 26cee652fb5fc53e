"""HTTP/1.1 on the clients' side: servers, connections, headers, bodies and responses."""
