"""Admission, TLS handshakes and addresses of listening ports and connections."""
