"""Attributions as self-contained HTML pages.

page(att)                 the text, shaded by score, with tables and certificate     att.to_html()
page(attributions)        several of them side by side
flow_page(attributions)   an interactive drawing of the flow                         att.to_flow_html()
fragment(att)             a piece for a notebook, which displays it automatically
"""

from gaflow.html.flow_page import flow_page
from gaflow.html.pages import fragment, page

__all__ = ["flow_page", "fragment", "page"]
