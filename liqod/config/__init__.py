"""Settings: their schema, defaults and loading."""
