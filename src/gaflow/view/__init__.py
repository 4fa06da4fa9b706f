"""What a reader is told about a result, without saying how it is drawn."""
