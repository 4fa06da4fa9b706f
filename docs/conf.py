"""Settings of the documentation site. `make docs` builds it without network, and warnings are errors.

`site_pages.py` makes further pages from other files of the repository. They are not committed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import gaflow

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import docstrings  # noqa: E402
import site_pages  # noqa: E402

project = "gaflow"
author = "The gaflow developers"
copyright = "The gaflow developers"
version = release = gaflow.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
default_role = "code"  # docstrings write `name`, as Markdown does
nitpicky = False

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4  # links such as methods.md#agf go to headings
myst_dmath_double_inline = True
nb_execution_mode = "off"  # the stored outputs are shown; a test runs the notebooks
suppress_warnings = ["myst.header"]  # tables of results begin with small headings

# Docstrings
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
add_module_names = False
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True

# Pages
html_theme = "furo"
html_title = "gaflow"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
html_theme_options: dict[str, Any] = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#9a4a00", "color-brand-content": "#9a4a00"},
    "dark_css_variables": {"color-brand-primary": "#ffb070", "color-brand-content": "#ffb070"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def setup(app: Sphinx) -> None:
    """What Sphinx does not bring: the generated pages, indented code in docstrings, formulas without a script."""
    site_pages.write_pages()
    app.connect("source-read", _rewrite_links)
    app.connect("autodoc-process-docstring", _complete_docstring)
    app.connect("autodoc-process-signature", _shorten_signature)
    app.connect("build-finished", _write_list_of_pages)
    app.add_html_math_renderer("mathml", (_inline_formula, None), (_formula, None))


def _rewrite_links(app: Sphinx, name: str, content: list[str]) -> None:
    """Send links to files elsewhere in the repository to the pages that the site has of them."""
    page = Path(app.env.doc2path(name))
    if page.suffix == ".md":
        content[0] = site_pages.site_links(content[0], page.parent, page.parent).replace("\n\n```\n", "\n```\n")


def _complete_docstring(_app: Sphinx, kind: str, _name: str, value: object, _options: object, lines: list[str]) -> None:
    lines[:] = docstrings.mark_code(lines)
    if kind == "class" and isinstance(value, type):
        lines += docstrings.fields(value)


def _shorten_signature(
    _app: Sphinx, _kind: str, _name: str, _value: object, _options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Types by their own names, without the modules they come from."""
    return docstrings.without_modules(signature), docstrings.without_modules(returned)


def _write_list_of_pages(app: Sphinx, error: Exception | None) -> None:
    """The site's own llms.txt, a list of its pages for language models."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "llms.txt").write_text(site_pages.list_of_pages(), encoding="utf-8")


def _inline_formula(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _formula(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode
