"""How the API of one lender is reached: credential, health, choice of endpoint and failover."""
