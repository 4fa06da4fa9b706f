"""Solvers of the flow problem: the barrier loop, its linear algebra, and references to check it against."""
