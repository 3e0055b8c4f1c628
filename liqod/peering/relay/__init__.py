"""The API relay: forwards HTTP/1.1 requests of borrowers, received on the peers' TLS port, to the API server."""
