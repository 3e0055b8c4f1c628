"""Commands about the network: plan, netcheck, test, bench."""
