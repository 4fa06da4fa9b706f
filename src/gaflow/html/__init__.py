"""Attributions as self-contained HTML.

page(att)            the text, shaded by score, and all there is to say    att.to_html()
page(attributions)   several of them side by side
fragment(att)        a piece for a notebook, which shows it by itself
"""

from gaflow.html.flow_page import flow_page
from gaflow.html.pages import fragment, named, page

__all__ = ["flow_page", "fragment", "named", "page"]
