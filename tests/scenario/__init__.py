"""Wide scenarios on simulated time: whole daemons and clusters in one process, on one virtual clock and network."""
