"""How Sphinx makes the site of these pages: scripts/docs."""

from __future__ import annotations

import re
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent

project = "shadowrelay"
author = "the authors of shadowrelay"
copyright = author
version = release = installed("shadowrelay")
language = "en-GB"

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["_*"]
# Blocks of these kinds are what other servers' files look like.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "shadowrelay"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("copy.js", {"defer": "defer"})]
html_copy_source = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e69", "color-brand-content": "#0b6e69"},
    "dark_css_variables": {"color-brand-primary": "#5cc8bf", "color-brand-content": "#5cc8bf"},
}

_OUTSIDE = re.compile(r"\]\((?P<up>(?:\.\./)+)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_PAGES = {"README.md": "index", "CHANGELOG.md": "changelog"}


def link_pages_from_outside(app: Sphinx, page: str, source: list[str]) -> None:
    """Links to the pages that stand beside docs/ lead to what the site has instead."""
    del app
    folder = Path(page).parent

    def moved(found: re.Match[str]) -> str:
        name = _PAGES.get(found["path"])
        if name is None or (HERE / folder / found["up"]).resolve() != ROOT:
            return found[0]
        return f"](/{name}.md)"

    source[0] = _OUTSIDE.sub(moved, source[0])


def draw_pictures_in_the_page(app: Sphinx, tree: nodes.document, page: str) -> None:
    """An SVG that is part of the page follows the page's colours, also when its reader chose them."""
    del app, page
    for image in tree.findall(nodes.image):
        path = HERE / image["uri"]
        if path.suffix == ".svg" and path.is_file():
            drawn = nodes.raw("", path.read_text("utf-8"), format="html")
            image.replace_self(drawn)


def setup(app: Sphinx) -> None:
    app.connect("source-read", link_pages_from_outside)
    app.connect("doctree-resolved", draw_pictures_in_the_page)
