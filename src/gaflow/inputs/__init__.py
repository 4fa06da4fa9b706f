"""Texts, pictures and sounds as tokens with offsets, and batches of them."""
