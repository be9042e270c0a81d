// SPDX-License-Identifier: BSD-2-Clause
// Containers of C++ whose holders are known; says what holders.c does.
#include "wipe.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct sum {
	unsigned long blocks, bytes;
};

static sum live;

void *operator new(size_t size)
{
	void *block = malloc(size);

	if (!block)
		abort();
	live.blocks++;
	live.bytes += malloc_usable_size(block);
	return block;
}

void operator delete(void *block) noexcept
{
	if (!block)
		return;
	live.blocks--;
	live.bytes -= malloc_usable_size(block);
	free(block);
}

void operator delete(void *block, size_t) noexcept
{
	operator delete(block);
}

namespace zoo
{
struct animal {
	virtual ~animal() = default;
	long legs = 2;
};
struct swimmer {
	virtual ~swimmer() = default;
	long depth = 1;
};
struct duck : animal, swimmer {
	long feathers = 1000;
};
} // namespace zoo

static std::map<int, std::string> names;
static std::vector<std::vector<int>> numbers;
static std::string text;
static std::vector<zoo::swimmer *> ducks; // pointers to a base class, inside of the blocks

static void say(const char *name, const sum &before, bool is_class)
{
	printf("holder %s variable %lu %lu\n", name, is_class ? 200ul : live.blocks - before.blocks,
	       live.bytes - before.bytes);
}

static __attribute__((noinline)) void plant()
{
	sum before = live;
	for (int i = 0; i < 300; i++)
		names[i] = std::string(100, 'n');
	say("names", before, false);
	before = live;
	for (int i = 1; i < 100; i++)
		numbers.emplace_back(i, i);
	say("numbers", before, false);
	before = live;
	text = std::string(2000, 't');
	say("text", before, false);
	before = live;
	for (int i = 0; i < 200; i++)
		ducks.push_back(new zoo::duck);
	say("ducks", before, true);
}

int main()
{
	static char output[4096];
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
