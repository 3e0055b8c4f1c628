"""ForeignCluster records: pins, status, events, garbage collection, tombstones."""
