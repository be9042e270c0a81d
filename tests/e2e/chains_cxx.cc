// SPDX-License-Identifier: BSD-2-Clause
// What chains.c says, of classes and containers of C++.
#include "wipe.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace zoo
{
struct animal {
	virtual ~animal() = default;
	long legs = 2;
	char *name = nullptr;
};
struct swimmer {
	virtual ~swimmer() = default;
	char *pond = nullptr;
};
struct duck : animal, swimmer {
	char *nest = nullptr;
};
template <typename T> struct cage {
	T *inmate = nullptr;
	static cage *first;
};
template <typename T> cage<T> *cage<T>::first;
} // namespace zoo

// Not static: the compiler would leave out what nobody reads.
zoo::cage<zoo::duck> cage;
zoo::duck *direct;
zoo::swimmer *by_base;
std::vector<char *> names;
std::unique_ptr<zoo::duck> owned;
void *anything;

static __attribute__((noinline)) char *kept(const char *chain)
{
	char *block = static_cast<char *>(malloc(4000));

	memset(block, 'k', 4000);
	printf("chain %p %s\n", static_cast<void *>(block), chain);
	return block;
}

static __attribute__((noinline)) void plant()
{
	cage.inmate = new zoo::duck;
	cage.inmate->nest = kept("cage.inmate -> nest (+40)");
	direct = new zoo::duck;
	direct->name = kept("direct -> name (+16)");
	// Its virtual table tells what the block is.
	by_base = new zoo::duck;
	by_base->pond = kept("by_base -> pond (+32)");
	zoo::duck *untyped = new zoo::duck;
	untyped->nest = kept("anything -> nest (+40)");
	anything = untyped;
	names.resize(7);
	names[5] = kept("names._M_impl._M_start -> [5] (+40)");
	owned = std::make_unique<zoo::duck>();
	owned->nest = kept("owned._M_t._M_t._M_head_impl -> nest (+40)");
	zoo::cage<zoo::animal>::first = new zoo::cage<zoo::animal>;
	zoo::cage<zoo::animal>::first->inmate = new zoo::duck;
	zoo::cage<zoo::animal>::first->inmate->name =
		kept("zoo::cage<zoo::animal>::first -> inmate (+0) -> name (+16)");
}

int main()
{
	static char output[1 << 16];
	char letter;

	setvbuf(stdout, output, _IOFBF, sizeof(output));
	plant();
	wipe();
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &letter, 1) > 0)
		;
	_exit(0);
}
