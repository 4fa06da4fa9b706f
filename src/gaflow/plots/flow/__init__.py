"""The flow through the layers as a figure."""
