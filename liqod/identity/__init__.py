"""Keys, certificates, pins and TLS contexts."""
