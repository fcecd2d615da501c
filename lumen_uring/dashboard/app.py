"""The program that Streamlit runs for `lumen dashboard`: once for each visit and each change.

Started by commands/dashboard.py, never imported. It reads files again when they have changed.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import streamlit as st

from lumen_uring.dashboard import pages, runs


def _library(paths: list[str]) -> runs.Library:
    files, findings = runs.find(map(Path, paths))
    read = st.cache_resource(_read, max_entries=64, show_spinner="Reading the files")
    found = {}
    for file in files:
        status = file.stat()
        found[file] = read(str(file), status.st_mtime_ns, status.st_size)
    return runs.gather(found, findings)


def _read(path: str, _changed_ns: int, _bytes: int) -> runs.Read:
    return runs.read_file(Path(path))


def main() -> None:
    """Draws the chosen page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="*")
    arguments = parser.parse_args()
    st.set_page_config(page_title="Lumen", layout="wide")
    library = _library(arguments.paths)
    recorded = (
        ("Files", pages.files),  # the first one has no path of its own
        ("Modes", pages.modes),
        ("Percentiles", pages.percentiles),
        ("Queue", pages.queue),
        ("Timeline", pages.timeline),
        ("Workers", pages.workers),
        ("Comparison", pages.comparison),
        ("Processor", pages.processor),
    )
    several = [
        st.Page(partial(draw, library), title=title, url_path=title.lower())
        for title, draw in recorded
    ]
    chosen = st.navigation(several, position="top")
    if library.findings and chosen is not several[0]:
        st.caption(f"{len(library.findings)} remarks on the files: see Files.")
    chosen.run()


if __name__ == "__main__":
    main()
