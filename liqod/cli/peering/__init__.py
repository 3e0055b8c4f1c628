"""Commands about peers: peer, trust, token, accept, unpeer, keys."""
