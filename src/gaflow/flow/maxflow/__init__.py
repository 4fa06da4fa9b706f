"""Maximum flow without a barrier, on exact integers: flows, cuts and the range of scores they allow."""
