#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes a site of what the tree has: README.md, docs/, the man pages, CHANGELOG.md and so on, by mkdocs with its theme material.

    site.py FOLDER

Needs mkdocs, mkdocs-material, scdoc and mandoc. Each link within the site leads to a file and a heading that exist: otherwise
it says which does not, and exits with 1. The pages load nothing from elsewhere.
"""

import argparse
import html.parser
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from man_page import assemble

TREE = Path(__file__).resolve().parent.parent
TOOLS = ("mkdocs", "scdoc", "mandoc")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs")
LINK = re.compile(r"(?<=\]\()[^)#\s]+")
SECTIONS = (("Tutorials", "docs/tutorials"), ("Servers", "docs/servers"), ("Guides", "docs"), ("Commands", "man"), ("Reports as JSON", "docs/schema"),
            ("Decisions", "docs/decisions"))
CONFIG = """site_name: heapline
docs_dir: pages
site_dir: site
use_directory_urls: false
plugins: [search]
theme: {name: material, font: false}
markdown_extensions: [tables, fenced_code, sane_lists, toc]
"""


def write_man_pages(folder):
    """The man pages as pieces of HTML in pages of Markdown; and a list of them."""
    folder.mkdir()
    rows = []
    for source in sorted((TREE / "man").glob("*.scd")):
        text, _ = assemble(source)
        roff = subprocess.run(["scdoc"], input=text, capture_output=True, text=True, check=True).stdout
        page = subprocess.run(["mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html"], input=roff, capture_output=True, text=True, check=True).stdout
        name, section = source.stem.rsplit(".", 1)
        page = re.sub(r'<table class="(head|foot)">.*?</table>', "", page, flags=re.S)
        # An empty line would end the piece of HTML.
        (folder / f"{source.stem}.md").write_text(f"# {name}({section})\n\n" + re.sub(r"\n\s*\n", "\n", page))
        about = re.search(r"^# NAME\n+\S+ - (.*)$", text, re.M)
        rows.append(f"| [{name}({section})]({source.stem}.md) | {about[1] if about else ''} |\n")
    (folder / "index.md").write_text("# Commands\n\n| page | what |\n|---|---|\n" + "".join(rows))


def page_of(folder):
    """What a link to a folder leads to: its list, or its first page."""
    return next(iter([*folder.glob("index.md"), *folder.glob("README.md"), *sorted(folder.glob("*.md"))]), None)


def copy_linked(pages, page):
    """Gives a page the files of the tree that it leads to, and sends links to folders to a page in them."""
    place = pages / page
    text = place.read_text(encoding="utf-8")
    for link in LINK.findall(text):
        target = (place.parent / unquote(link)).resolve()
        if urlsplit(link).scheme or not target.is_relative_to(pages):
            continue
        source = TREE / target.relative_to(pages)
        if target.is_dir() and (leads_to := page_of(target)):
            text = text.replace(f"]({link})", f"]({link.rstrip('/')}/{leads_to.name})")
        elif source.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    place.write_text(text, encoding="utf-8")


def title_of(page):
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.M)
    return (found[1] if found else page.stem).replace('"', "'")


def navigation(pages):
    lines = ['nav:', '  - "heapline": README.md', '  - "Documentation": docs/README.md']
    for title, folder in SECTIONS:
        lines.append(f'  - "{title}":')
        lines += [f'    - "{title_of(page)}": {page.relative_to(pages)}' for page in sorted((pages / folder).glob("*.md"))
                  if page != pages / "docs/README.md"]
    lines += [f'  - "{title}": {page}' for title, page in (("Changes", "CHANGELOG.md"), ("Security", "SECURITY.md"), ("Contributing", "CONTRIBUTING.md"))]
    return "\n".join(lines) + "\n"


class Page(html.parser.HTMLParser):
    """The links of a page, and what links to it may name."""

    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names.update(filter(None, (given.get("id"), given.get("name"))))
        self.links += filter(None, (given.get("href"), given.get("src")))


def dead_links(site):
    """A sentence for each link within the site that leads nowhere, and for each file that a page would load from elsewhere."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            where = path.relative_to(site)
            if not target.is_file():
                yield f"{where}: '{link}' leads to no file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
                yield f"{where}: '{link}' leads to no heading"


def make(work):
    """The site, in a folder below ``work``."""
    pages = work / "pages"
    pages.mkdir()
    for name in PAGES:
        (shutil.copytree if (TREE / name).is_dir() else shutil.copy)(TREE / name, pages / name)
    write_man_pages(pages / "man")
    for page in sorted(pages.rglob("*.md")):
        copy_linked(pages, page.relative_to(pages))
    (work / "mkdocs.yml").write_text(CONFIG + navigation(pages))
    said = subprocess.run(["mkdocs", "build", "--strict", "--quiet", "--config-file", work / "mkdocs.yml"], capture_output=True, text=True, check=False)
    if said.returncode:
        sys.exit(f"site.py: mkdocs makes no site: {said.stderr or said.stdout}")
    return work / "site"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        print(f"skipped: {', '.join(missing)} not installed; install the packages mkdocs-material scdoc mandoc")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as work:
        site = make(Path(work))
        dead = sorted(set(dead_links(site)))
        if dead:
            sys.exit("\n".join(dead))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(site, folder)
    print(f"{folder}/index.html")


if __name__ == "__main__":
    main()
