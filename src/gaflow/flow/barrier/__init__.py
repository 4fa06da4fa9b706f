"""The log-barrier maximum flow: Newton's method on the potentials of a layered network."""
