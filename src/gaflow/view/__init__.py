"""What a reader is told about a result, without saying how it is drawn."""

from gaflow.view.summary import Summary, summarize

__all__ = ["Summary", "summarize"]
