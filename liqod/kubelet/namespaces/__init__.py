"""Which home namespaces are offloaded, under which names at the lender, and what users see of that."""
