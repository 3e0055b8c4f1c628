"""Commands about the network: plan, netcheck, ping, test, bench."""
