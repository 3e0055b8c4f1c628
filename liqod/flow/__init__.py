"""Time and concurrency, free of the domain: back-off, keyed queues, tasks, observers."""
