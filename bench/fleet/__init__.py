"""Several Lumens behind a balancer: what is lost while they restart, and who gets how much."""
