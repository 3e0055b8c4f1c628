"""Security events as JSON lines: who was trusted, refused, granted or denied what, and when. See docs/audit.md."""
