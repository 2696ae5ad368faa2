"""The site in headless Chromium: no page is wider than its window, and the picture follows the theme."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")
WIDTHS = {"phone": 390, "desktop": 1280}

MEASURE = """\
<!doctype html><title>measuring</title><body><script>
const pages = PAGES, widths = WIDTHS, found = {};
async function measure(page, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `border: 0; width: ${width}px; height: 800px`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page;
  document.body.append(frame);
  await loaded;
  const seen = frame.contentDocument, root = seen.documentElement;
  const names = seen.querySelectorAll(".flow .name");
  const colours = {};
  for (const theme of ["light", "dark"]) {
    seen.body.dataset.theme = theme;
    colours[theme] = names.length ? frame.contentWindow.getComputedStyle(names[0]).fill : "";
  }
  const box = names.length ? seen.querySelector(".flow").getBoundingClientRect() : {width: 0};
  found[`${page} ${width}`] = {over: root.scrollWidth - root.clientWidth, colours, picture: box.width,
    blocks: seen.querySelectorAll("div.highlight pre").length,
    buttons: seen.querySelectorAll("button.copy").length};
  frame.remove();
}
(async () => {
  for (const page of pages) for (const width of widths) await measure(page, width);
  document.body.textContent = `RESULT${JSON.stringify(found)}RESULT`;
})();
</script>
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a browser measured of each page at each width."""
    directory = tmp_path_factory.mktemp("browser")
    site = directory / "site"
    subprocess.run([ROOT / "scripts" / "docs", site], check=True, capture_output=True)
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    script = MEASURE.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps([*WIDTHS.values()]))
    (site / "measure.html").write_text(script, "utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = subprocess.run(
            [
                str(CHROMIUM),
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--no-first-run",
                f"--user-data-dir={directory / 'profile'}",
                "--virtual-time-budget=600000",
                "--dump-dom",
                f"http://127.0.0.1:{server.server_port}/measure.html",
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        server.shutdown()
        server.server_close()
    told = re.search(r"RESULT(\{.*\})RESULT", done.stdout, re.DOTALL)
    assert told, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(told[1])
    assert len(found) == len(pages) * len(WIDTHS)
    return found


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium (Debian package chromium) is missing"),
]


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_no_page_is_wider_than_its_window(seen: dict[str, Any], width: int):
    over = {page: one["over"] for page, one in seen.items() if page.endswith(f" {width}") and one["over"] > 0}
    assert over == {}


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_picture_fits_and_is_legible_in_the_light_and_in_the_dark(seen: dict[str, Any], width: int):
    home = seen[f"index.html {width}"]
    assert 300 < home["picture"] <= width
    light, dark = (
        sum(map(int, re.findall(r"\d+", home["colours"][theme])[:3])) for theme in ("light", "dark")
    )
    assert light < 200  # dark ink
    assert dark > 600  # light ink


def test_each_block_of_code_has_a_button_to_copy_it(seen: dict[str, Any]):
    assert {name for name, one in seen.items() if one["blocks"] != one["buttons"]} == set()
    assert any(one["blocks"] for one in seen.values())
