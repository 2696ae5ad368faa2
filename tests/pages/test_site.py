"""The site of docs/: made without a warning, every link on it leads somewhere, and its picture is drawn."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURE = DOCS / "pictures" / "flow.svg"
STYLE = DOCS / "_static" / "site.css"


class Page(HTMLParser):
    """Where a page of the site leads, and what in it can be led to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if name := given.get("id"):
            self.names.add(name)
        for where in (given.get("href"), given.get("src")):
            if where and "//" not in where and not where.startswith(("data:", "mailto:")):
                self.links.append(unquote(where))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site") / "docs"
    done = subprocess.run([ROOT / "scripts" / "docs", made], check=False, capture_output=True, text=True)
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip("Sphinx (extra 'docs') could not be installed")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(site: Path):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    for path, page in pages.items():
        for link in page.links:
            where, _, name = link.partition("?")[0].partition("#")
            target = (path.parent / where).resolve() if where else path
            assert target.exists(), f"{path.name}: {link}"
            assert not name or target not in pages or name in pages[target].names, f"{path.name}: {link}"


@pytest.mark.slow
def test_every_page_of_the_documentation_is_in_the_menu_of_the_home_page(site: Path):
    links = Page(site / "index.html").links
    for page in DOCS.rglob("*.md"):
        assert str(page.relative_to(DOCS).with_suffix(".html")) in links or page.name == "index.md"


@pytest.mark.slow
def test_the_picture_is_part_of_the_home_page(site: Path):
    text = (site / "index.html").read_text("utf-8")
    assert text.count('<svg xmlns="http://www.w3.org/2000/svg" class="flow"') == 1
    assert "A message has two copies" in text


def test_the_picture_says_in_words_what_it_shows():
    root = ElementTree.parse(PICTURE).getroot()
    names = {element.get("id"): element for element in root.iter()}
    labelled = (root.get("aria-labelledby") or "").split()
    assert root.get("role") == "img"
    assert labelled
    assert all("".join(names[name].itertext()).strip() for name in labelled)


def test_the_picture_has_the_same_colours_by_the_systems_choice_and_by_the_readers():
    of_system = re.findall(r"\.flow \{ (--flow-.*?) \}", PICTURE.read_text("utf-8"))
    of_reader = re.findall(r'data-theme="(\w+)"\] \.flow \{ (--flow-.*?) \}', STYLE.read_text("utf-8"))
    assert [theme for theme, _ in of_reader] == ["light", "dark"]
    assert [colours for _, colours in of_reader] == of_system
    assert len({re.sub("#[0-9a-f]{6}", "", colours) for colours in of_system}) == 1
