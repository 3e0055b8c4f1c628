"""The API server: HTTP, requests, watches, tables, discovery, admission webhooks."""
