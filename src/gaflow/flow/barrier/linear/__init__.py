"""The linear systems of the Newton steps, and the ways of solving them."""
