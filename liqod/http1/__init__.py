"""HTTP/1.1 without I/O, for the peer relay and for the kubelet API: h11 reads and writes it, strictly and bounded."""
