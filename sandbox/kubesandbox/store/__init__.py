"""The objects of a cluster: their storage, lists, patches and field ownership."""
