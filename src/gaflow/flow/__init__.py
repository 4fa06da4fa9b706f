"""The numerical core: capacity tensors in, flows with certificates out; no text, token or model is known here."""
