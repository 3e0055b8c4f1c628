"""Connections to one API server: configuration, TLS, pools, and limits on requests in progress."""
