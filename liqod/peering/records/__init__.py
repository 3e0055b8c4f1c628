"""ForeignCluster records and what is kept beside them: status, events, tombstones."""
