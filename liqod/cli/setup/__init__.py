"""Commands that install, check and remove liqod, in a cluster and on a host."""
