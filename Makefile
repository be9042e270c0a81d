# SPDX-License-Identifier: BSD-2-Clause
# A short front for meson. `make help` lists the targets.
PREFIX ?= /usr/local
DESTDIR ?=
BUILD = build
DEVELOPMENT = build-dev
MESON_FLAGS = -Dtests=false -Dbench=false
LUA_MODULE = lua/heapline.so

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@scripts/deps.sh --missing build || { \
		echo "heapline: cannot build yet; install the missing packages with: make deps" >&2; \
		exit 1; }
	meson setup --prefix=$(PREFIX) $(MESON_FLAGS) $(BUILD)

help:
	@echo 'make          build into $(BUILD)/; $(BUILD)/heapline runs from there'
	@echo 'make deps     install what the build needs (Debian; sudo if not root)'
	@echo 'make demo     deps, build, record a real program, show where its memory went'
	@echo 'make quick    unit tests, the command line, checks of the tree, in $(DEVELOPMENT)/'
	@echo 'make test T=NAME  one unit test or script, as T=attach or T=test_attach; K=WORD: of a script the cases with WORD'
	@echo 'make check    install what the tests need, build every variant, run every test'
	@echo '              SUITE=trixie or sid: in that release of Debian; ONLY=debian13 or another part'
	@echo 'make versions SUITE=trixie  each verb on the servers and interpreters of that release of Debian'
	@echo 'make bench    measure against other profilers; ONLY=ring,python REPEAT=5 to choose'
	@echo 'make install  DESTDIR= PREFIX= (now $(PREFIX))'
	@echo 'make lua-module LUA_INC=DIR  build $(LUA_MODULE) for the Lua whose lua.h is in DIR'
	@echo 'make deb      Debian packages of the last commit, in $(BUILD)-deb/'
	@echo 'make release  VERSION=0.2.0 URL=https://...: commit, tarball, checksum and SPDX of a release, in $(BUILD)-release/'
	@echo 'make reproducible  build the packages twice, in two folders, and compare them'
	@echo 'make site     the documentation as pages of HTML, in $(BUILD)-site/'
	@echo 'make format   run clang-format over the sources'
	@echo 'make clean    remove everything that the other commands built'

deps:
	@scripts/deps.sh build

demo:
	@scripts/demo.sh $(BUILD)

# A build with the tests, for development.
$(DEVELOPMENT)/build.ninja:
	@scripts/deps.sh build basic
	meson setup $(DEVELOPMENT)

quick: $(DEVELOPMENT)/build.ninja
	@python3 scripts/check.py quick

test: $(DEVELOPMENT)/build.ninja
	@test -n "$(T)" || { echo "heapline: which test? name one, as: make test T=attach" >&2; exit 2; }
	@python3 scripts/check.py --test "$(T)" $(if $(K),--word "$(K)")

check:
ifdef SUITE
	@python3 scripts/check.py --suite $(SUITE) $(ONLY)
else
	@scripts/deps.sh build deb check
	@python3 scripts/check.py $(ONLY)
endif

# Servers and interpreters of a release's packages, as subjects of each verb; in build-check/SUITE.
versions:
	@test -n "$(SUITE)" || { echo "heapline: in which release? name one, as: make versions SUITE=trixie" >&2; exit 2; }
	@mkdir -p build-check
	@scripts/release.sh $(SUITE) build-check/$(SUITE) 'scripts/deps.sh build versions && make && tests/versions.py build'

bench: $(BUILD)/build.ninja
	meson configure $(BUILD) -Dbench=true
	ninja -C $(BUILD)
	@python3 bench/run.py --build $(BUILD) $(if $(ONLY),--only $(ONLY)) \
		$(if $(REPEAT),--repeat $(REPEAT)) $(BENCH_FLAGS)
	meson configure $(BUILD) -Dbench=false

install: all
	meson configure $(BUILD) --prefix=$(PREFIX)
	DESTDIR="$(DESTDIR)" meson install -C $(BUILD)

# For a host with a Lua inside, such as skynet's 3rd/lua. Needs a C compiler and nothing else.
lua-module:
	@test -n "$(LUA_INC)" && test -f "$(LUA_INC)/lua.h" || { \
		echo "heapline: no lua.h in '$(LUA_INC)'; name the folder that has it, as LUA_INC=skynet/3rd/lua" >&2; \
		exit 1; }
	$(CC) -O2 -shared -fPIC -D_GNU_SOURCE -I"$(LUA_INC)" -Iinclude -Isrc -Isrc/arch/$(shell uname -m) -o "$(LUA_MODULE)" \
		lua/heapline.c src/base/seccomp.c $(addprefix src/recorder/,ask_collector.c line_report.c sys.c)

deb:
	@scripts/deps.sh build deb
	@scripts/deb.sh $(BUILD)-deb

release:
	@test -n "$(VERSION)" -a -n "$(URL)" || { \
		echo "heapline: which version, and where does the project live? as: make release VERSION=0.2.0 URL=https://..." >&2; exit 2; }
	@scripts/make_release.py "$(VERSION)" "$(URL)" $(BUILD)-release

reproducible:
	@scripts/deps.sh build deb
	@scripts/reproducible.sh

site:
	@scripts/site.py $(BUILD)-site

format:
	@python3 scripts/check.py --fix-format

clean:
	rm -rf $(BUILD) $(BUILD)-deb $(BUILD)-release $(BUILD)-site $(DEVELOPMENT) build-check demo.hl $(LUA_MODULE)

.PHONY: all help deps demo quick test check versions bench install lua-module deb release reproducible site format clean
