"""``move``: the data of a claim goes to another cluster, by a copy that is looked at before the original goes."""
