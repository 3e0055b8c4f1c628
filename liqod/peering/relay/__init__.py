"""The API relay: HTTP/1.1 on the peers' TLS port, passed on to the cluster's own API server."""
