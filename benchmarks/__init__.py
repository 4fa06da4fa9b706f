"""Scripts that measure; their tables are in results/."""
