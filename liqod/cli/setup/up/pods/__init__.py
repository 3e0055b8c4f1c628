"""``up`` and ``down`` with ``--in-cluster``: liqod as pods of the cluster that it serves, out of the chart."""
