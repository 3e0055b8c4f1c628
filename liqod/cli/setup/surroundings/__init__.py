"""What cluster liqod comes to: distribution, network plugin, and what follows from them for an installation."""
