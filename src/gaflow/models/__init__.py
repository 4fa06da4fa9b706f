"""Everything that touches a model: loading, tracing, adapters, memory and cost."""
