"""Report and summary in headless Chromium: no page is wider than its window, and both themes can be read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gold import tables
from test_audit_summary import HOSTILE, SMALL

from shadowaudit.cli import main
from shadowaudit.summary.computing import summarize
from shadowaudit.summary.gold import Gold
from shadowaudit.summary.model import Asked
from shadowaudit.summary.page import page
from shadowlab.generate.cluster import generate

CHROMIUM = shutil.which("chromium")
WIDTHS = {"phone": 390, "desktop": 1280}
THEMES = {"dark": 0, "light": 1}
LONG = "x" * 240
FAULTS = {"lost": 1, "duplicate": 1, "exposed": 2, "promotion": 1, "hash": 1}

MEASURE = """\
<!doctype html><title>measuring</title><body><script>
const pages = PAGES, widths = WIDTHS, found = {};
function light(colour) {
  return colour.match(/\\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0);
}
async function measure(name, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `border: 0; width: ${width}px; height: 800px`;
  const loaded = new Promise(done => frame.onload = done);
  frame.srcdoc = pages[name];
  document.body.append(frame);
  await loaded;
  const seen = frame.contentDocument, root = seen.documentElement;
  const style = frame.contentWindow.getComputedStyle;
  for (const one of seen.querySelectorAll("details")) one.open = true;
  const small = [...seen.querySelectorAll("svg text")].filter(one => style(one).display !== "none").map(one =>
    parseFloat(style(one).fontSize) * one.ownerSVGElement.getBoundingClientRect().width / 640);
  found[`${name} ${width}`] = {
    over: root.scrollWidth - root.clientWidth,
    ink: light(style(seen.body).color), ground: light(style(seen.body).backgroundColor),
    chart: light(style(seen.querySelector("svg text")).fill), least: Math.min(...small),
  };
  frame.remove();
}
(async () => {
  for (const name of Object.keys(pages)) for (const width of widths) await measure(name, width);
  document.body.textContent = `RESULT${JSON.stringify(found)}RESULT`;
})();
</script>
"""


def summary() -> str:
    rows = {name: [dict(row) for row in some] for name, some in SMALL.items()}
    for row in rows["domains"] + rows["latencies"] + rows["reasons"]:
        row.update(
            {name: row[name] and row[name] + LONG for name in ("domain", "next_hop", "reply") if name in row}
        )
    rows["reasons"][0]["reply"] = HOSTILE
    found = summarize(Gold(tables(rows)), Asked())
    return page(found, f"s3://{LONG}", 1, "2026-11-26T00:00:00+00:00")


def report(directory: Path) -> str:
    generate(directory / "logs", messages=200, faults=FAULTS, seed=3)
    arguments = ("verify", directory / "logs", "--engine", "here", "--out", directory / "out")
    assert CliRunner().invoke(main, [str(one) for one in arguments]).exit_code == 1
    return (directory / "out" / "report.html").read_text("utf-8")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a browser measured of each page, at each width and in each theme."""
    directory = tmp_path_factory.mktemp("pages")
    pages = json.dumps({"summary": summary(), "report": report(directory)}).replace("</", "<\\/")
    script = MEASURE.replace("PAGES", pages).replace("WIDTHS", json.dumps([*WIDTHS.values()]))
    (directory / "measure.html").write_text(script, "utf-8")
    found = {}
    for theme, number in THEMES.items():
        done = subprocess.run(
            [
                str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", f"--user-data-dir={directory / 'profile'}",
                "--virtual-time-budget=60000",
                f"--blink-settings=preferredColorScheme={number}", "--dump-dom",
                f"file://{directory / 'measure.html'}",
            ],
            check=False, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        told = re.search(r"RESULT(\{.*\})RESULT", done.stdout, re.DOTALL)
        assert told, done.stdout[-2000:] + done.stderr[-2000:]
        found |= {f"{name} {theme}": one for name, one in json.loads(told[1]).items()}
    assert len(found) == 2 * len(WIDTHS) * len(THEMES)
    return found


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium (Debian package chromium) is missing"),
]


def test_no_page_is_wider_than_its_window(seen: dict[str, Any]) -> None:
    assert {name: one["over"] for name, one in seen.items() if one["over"] > 0} == {}


def test_each_theme_has_ink_that_stands_out(seen: dict[str, Any]) -> None:
    for name, one in seen.items():
        dark = name.endswith("dark")
        assert (one["ground"] < 200) is dark, name
        assert abs(one["ink"] - one["ground"]) > 500, name
        assert abs(one["chart"] - one["ground"]) > 300, name


def test_the_text_of_charts_is_large_enough_to_read(seen: dict[str, Any]) -> None:
    assert {name: one["least"] for name, one in seen.items() if one["least"] < 9} == {}
