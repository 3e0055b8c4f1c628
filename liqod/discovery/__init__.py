"""Finding peers by mDNS, DNS-SD and configuration."""
