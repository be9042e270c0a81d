#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""deps.sh with an apt and a dpkg that are made up: what it asks for in releases that have other packages."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

DEPS = Path(__file__).resolve().parent / "deps.sh"

# What the programs below read lies in $FAKE: `installed` as dpkg-query prints it, `available` names and `provided` names
# one a line; `broken` names what apt refuses to install; where `offline` is there is no network. `asked` is written.
PROGRAMS = {
    "id": 'echo 0',
    "gcc": 'echo 14',
    "dpkg-query": 'cat "$FAKE/installed"',
    "apt-cache": r'''
verb=$1; shift
[[ $verb == policy || $verb == showpkg ]] || exit 0
for name in "$@"; do echo "$name"; done | grep -xF -f "$FAKE/available" -f "$FAKE/provided" | while read -r name; do
	is_real= candidate='(none)' provider="${name}t64 1.0 (= 1.0)"
	while read -r real; do [[ $real != "$name" ]] || is_real=1; done <"$FAKE/available"
	[[ -z $is_real ]] || candidate=1.0 provider=
	if [[ $verb == policy ]]; then
		printf '%s:\n  Installed: (none)\n  Candidate: %s\n' "$name" "$candidate"
	else
		printf 'Package: %s\nProvides: \n1.0 - \nReverse Provides: \n%s\n' "$name" "$provider"
	fi
done''',
    "apt-get": r'''
echo "$*" >>"$FAKE/asked"
[[ $1 != update ]] || exit 0
names=() simulates=
for word in "${@:2}"; do
	case $word in -s) simulates=1 ;; -*) ;; *) names+=("$word") ;; esac
done
unknown=$(printf '%s\n' "${names[@]}" | grep -vxF -f "$FAKE/available" -f "$FAKE/provided")
[[ -z $unknown ]] || { echo "E: Unable to locate package $unknown" >&2; exit 100; }
! printf '%s\n' "${names[@]}" | grep -qxF -f "$FAKE/broken" || exit 100
[[ -n $simulates ]] && exit 0
[[ ! -e $FAKE/offline ]] || exit 100
printf 'installed %s, \n' "${names[@]}" >>"$FAKE/installed"''',
}


class Deps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.fake = Path(folder.name)
        for name, text in PROGRAMS.items():
            (self.fake / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.fake / name).chmod(0o755)
        (self.fake / "asked").touch()
        self.set_release(self.words("build", "check", "deb", "bench"))

    def words(self, *sets):
        """What the script asks a system without dpkg for."""
        text = DEPS.read_text()
        functions = text[text.index("packages()"):text.index("# Names what is installed")]
        said = subprocess.run(["bash", "-c", functions + '\nfor set in "$@"; do packages "$set"; done', "-", *sets],
                              env=self.environment(), capture_output=True, text=True, check=True)
        return said.stdout.split()

    def environment(self):
        return {"PATH": f"{self.fake}:/usr/bin:/bin", "FAKE": str(self.fake)}

    def set_release(self, available, provided=(), broken=(), installed=()):
        """A release that has the packages ${available}; of words with alternatives the first."""
        names = [word.split("|")[0] for word in available]
        for file, lines in (("available", names), ("provided", provided), ("broken", broken), ("installed", installed)):
            (self.fake / file).write_text("".join(f"{line}\n" for line in lines))

    def run_deps(self, *words):
        return subprocess.run([DEPS, *words], env=self.environment(), capture_output=True, text=True, check=False)

    def asked(self):
        return (self.fake / "asked").read_text()

    def installs(self):
        """The packages of the calls that really install."""
        calls = [line.split() for line in self.asked().splitlines() if line.startswith("install") and " -s" not in line]
        return [word for call in calls for word in call[1:] if not word.startswith("-")]

    def test_a_second_run_asks_nothing(self):
        self.assertEqual(self.run_deps("build", "check").returncode, 0)
        self.assertIn("libcmocka-dev", self.installs())
        (self.fake / "asked").write_text("")
        self.assertEqual(self.run_deps("build", "check").returncode, 0)
        self.assertEqual(self.run_deps("--missing", "build", "check").returncode, 0)
        self.assertEqual(self.asked(), "")

    def test_the_name_that_the_release_has_is_taken(self):
        known = [word for word in self.words("build", "check") if "mimalloc" not in word]
        self.set_release([*known, "libmimalloc2.0"])
        said = self.run_deps("build", "check")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.assertIn("libmimalloc2.0", self.installs())
        self.assertNotIn("libmimalloc3", self.asked())

    def test_the_32_bit_libraries_are_those_of_the_compiler(self):
        self.run_deps("check")
        self.assertIn("lib32gcc-14-dev", self.installs())

    def test_a_name_that_is_only_provided_is_installed_once(self):
        known = [word for word in self.words("check") if word != "libtcmalloc-minimal4"]
        self.set_release(known, provided=["libtcmalloc-minimal4"])
        self.assertEqual(self.run_deps("check").returncode, 0)
        self.assertIn("libtcmalloc-minimal4", self.installs())
        names = [*(word.split("|")[0] for word in known), "libtcmalloc-minimal4t64"]
        lines = [f"installed {name}, libother (= 1), libtcmalloc-minimal4 (= 2.16)" if "t64" in name
                 else f"installed {name}, " for name in names]
        self.set_release(known, installed=lines)
        said = self.run_deps("--missing", "check")
        self.assertEqual((said.returncode, said.stderr), (0, ""))

    def test_of_several_that_provide_a_name_apt_chooses_none(self):
        # As in Ubuntu 24.04, whose linux-tools-generic brings one of the two.
        known = [word for word in self.words("build") if "bpftool" not in word]
        self.set_release([*known, "linux-tools-generic"], provided=["bpftool"])
        program = self.fake / "apt-cache"
        program.write_text(program.read_text().replace('"$provider"', '"$provider${provider:+$(printf "\\nother-tools 1.0")}"'))
        self.assertEqual(self.run_deps("build").returncode, 0)
        self.assertIn("linux-tools-generic", self.installs())
        self.assertNotIn("bpftool", self.installs())

    def test_what_was_removed_but_for_its_files_is_missing(self):
        self.set_release(self.words("build"), installed=["config-files gcc, "])
        self.run_deps("build")
        self.assertIn("gcc", self.installs())

    def test_a_release_without_a_package_of_the_tests_lacks_that_alone(self):
        self.set_release([word for word in self.words("build", "check") if word != "clickhouse-server"])
        said = self.run_deps("build", "check")
        self.assertEqual(said.returncode, 0)
        self.assertRegex(said.stderr, r"this release does not have them.*: clickhouse-server\n")
        self.assertIn("lintian", self.installs())
        self.assertNotIn("clickhouse-server", self.asked())

    def test_what_apt_refuses_is_left_out(self):
        self.set_release(self.words("build", "check"), broken=["chromium"])
        said = self.run_deps("build", "check")
        self.assertEqual(said.returncode, 0)
        self.assertRegex(said.stderr, r"apt cannot install them here.*: chromium\n")
        self.assertIn("lintian", self.installs())
        self.assertNotIn("chromium", self.installs())

    def test_without_a_network_the_tests_begin_all_the_same(self):
        (self.fake / "offline").touch()
        said = self.run_deps("check")
        self.assertEqual(said.returncode, 0)
        self.assertRegex(said.stderr, r"apt-get failed.*: .*libcmocka-dev")

    def test_the_build_needs_each_of_its_packages(self):
        for broken in ({"available": [word for word in self.words("build") if word != "libdw-dev"]},
                       {"available": self.words("build"), "broken": ["libdw-dev"]}):
            self.set_release(**broken)
            said = self.run_deps("build", "check")
            self.assertEqual(said.returncode, 1)
            self.assertRegex(said.stderr, "cannot install what the build needs: .*libdw-dev")
            self.assertEqual((self.fake / "installed").read_text(), "")

    def test_missing_ones_are_named_without_a_change(self):
        self.set_release([word for word in self.words("build", "check") if word != "clickhouse-server"])
        said = self.run_deps("--missing", "build", "check")
        self.assertEqual(said.returncode, 1)
        self.assertRegex(said.stderr, r"does not have them.*: clickhouse-server\nmissing: gcc .*libmimalloc3")
        self.assertEqual(self.asked(), "")

    def test_an_apt_without_lists_says_nothing_about_the_release(self):
        self.set_release([])
        said = self.run_deps("--missing", "build", "check")
        self.assertEqual(said.returncode, 1)
        self.assertNotIn("release", said.stderr)
        self.assertRegex(said.stderr, r"missing: gcc .* libmimalloc3 ")

    def test_an_unknown_set_is_refused(self):
        said = self.run_deps("build", "nix")
        self.assertEqual((said.returncode, said.stdout), (2, ""))
        self.assertIn("unknown set 'nix'", said.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
