#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Prepares a release: what `make release VERSION=0.2.0 URL=https://...` does.

    make_release.py VERSION URL FOLDER

Names the version where it stands, cuts CHANGELOG.md, says in debian/ and README.md where the project lives, commits that, and
puts into FOLDER the tarball of the commit, its checksum and its bill of materials (SPDX). The same commit gives the same
tarball. Tag and push are the maintainer's; the last lines say how. Nothing is changed where anything is wrong.
"""

import argparse
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

TREE = Path(os.environ.get("HL_TREE", Path(__file__).resolve().parent.parent))
MESON_VERSION = re.compile(r"^(  version: ')([\d.]+)(',)$", re.M)
UNRELEASED = "## Unreleased\n"
CLONE = "git clone URL heapline"  # in README.md, until there is an address


class Refusal(Exception):
    """Says what is wrong and what helps."""


def git(*words, **options):
    return subprocess.run(["git", "-C", str(TREE), *words], check=True, capture_output=True, **options).stdout


def numbers(version):
    return [int(part) for part in version.split(".")]


def check(version, url, meson):
    """Raises Refusal where the release cannot be made."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Refusal(f"'{version}' is not a version, which has three numbers, as 0.2.0")
    before = MESON_VERSION.search(meson)[2]
    if numbers(version) <= numbers(before):
        raise Refusal(f"version {version} is not newer than {before}, which meson.build names")
    if not re.fullmatch(r"https://[\w.-]+/[\w./~-]*[\w~-]", url):
        raise Refusal(f"'{url}' is not the project's address, which begins with https:// and does not end in .git")
    if git("status", "--porcelain").strip():
        raise Refusal("the tree has changes that are not committed; commit or stash them")
    if git("tag", "--list", f"v{version}").strip():
        raise Refusal(f"the tag v{version} exists already")
    if not shutil.which("reuse"):
        raise Refusal("'reuse' is not installed, which writes the bill of materials; install the package reuse")
    said = subprocess.run(["reuse", "--root", str(TREE), "lint"], capture_output=True, text=True, check=False)
    if said.returncode:
        raise Refusal(f"files without a licence:\n{said.stdout}")


def cut_changelog(text, version, day):
    """The changes since the last release get its name, and an empty section stands above them."""
    begin = text.find(UNRELEASED)
    end = text.find("\n## ", begin + 1)
    if begin < 0 or not re.search(r"^- ", text[begin:end], re.M):
        raise Refusal("CHANGELOG.md lists nothing under 'Unreleased'; a release says what is new")
    return text.replace(UNRELEASED, f"{UNRELEASED}\n## {version}, {day}\n", 1)


def debian_entry(version, when):
    return (f"heapline ({version}) unstable; urgency=medium\n\n  * Version {version}; CHANGELOG.md says what is new.\n\n"
            f" -- The heapline authors <heapline@users.noreply.github.com>  {formatdate(when)}\n\n")


def edits(version, url, when):
    """The new text of each file, by its path. Raises Refusal."""
    read = {name: (TREE / name).read_text(encoding="utf-8")
            for name in ("meson.build", "CHANGELOG.md", "README.md", "debian/changelog", "debian/watch.in", "debian/upstream/metadata.in",
                          "python/pyproject.toml", "deploy/helm/heapline/Chart.yaml")}
    check(version, url, read["meson.build"])
    return {
        "meson.build": MESON_VERSION.sub(rf"\g<1>{version}\g<3>", read["meson.build"], count=1),
        "CHANGELOG.md": cut_changelog(read["CHANGELOG.md"], version, time.strftime("%Y-%m-%d", time.gmtime(when))),
        "README.md": read["README.md"].replace(CLONE, f"git clone {url} heapline"),
        "debian/changelog": debian_entry(version, when) + read["debian/changelog"],
        "python/pyproject.toml": re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', read["python/pyproject.toml"], count=1),
        "deploy/helm/heapline/Chart.yaml": re.sub(r'(?m)^(version: |appVersion: ")[^"\n]*', rf"\g<1>{version}",
                                                  read["deploy/helm/heapline/Chart.yaml"]),
        "debian/watch": read["debian/watch.in"].replace("@URL@", url),
        "debian/upstream/metadata": read["debian/upstream/metadata.in"].replace("@URL@", url),
    }


def write_tarball(version, path):
    tar = git("archive", "--format=tar", f"--prefix=heapline-{version}/", "HEAD")
    path.write_bytes(lzma.compress(tar, preset=6))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n")


def release(version, url, folder):
    when = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    for name, text in edits(version, url, when).items():
        (TREE / name).write_text(text, encoding="utf-8")
        git("add", name)
    git("commit", "--quiet", "--message", f"heapline {version}",
        env={**os.environ, "GIT_COMMITTER_DATE": f"{when} +0000", "GIT_AUTHOR_DATE": f"{when} +0000"})
    folder.mkdir(parents=True, exist_ok=True)
    tarball = folder / f"heapline-{version}.tar.xz"
    write_tarball(version, tarball)
    bill = folder / f"heapline-{version}.spdx"
    bill.write_bytes(subprocess.run(["reuse", "--root", str(TREE), "spdx"], check=True, capture_output=True).stdout)
    print(f"{tarball}, its checksum beside it\n{bill}\n\nLook at the last commit, then publish it:\n"
          f"  git tag -s v{version} -m 'heapline {version}'\n  git push origin HEAD v{version}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    try:
        release(options.version, options.url, options.folder)
    except Refusal as why:
        sys.exit(f"make_release.py: no release was made: {why}")


if __name__ == "__main__":
    main()
