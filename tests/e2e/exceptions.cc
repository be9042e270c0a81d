// SPDX-License-Identifier: BSD-2-Clause
// Throws across 100 frames, 300 times, with allocations on the way up, in destructors on the way
// down, and in the handler.
#include "program.h"

#include <stdexcept>

namespace
{

constexpr int levels = 100;
constexpr int rounds = 300;

} // namespace

SITE void *climb_site(std::size_t bytes)
{
	void *block = std::malloc(bytes);
	KEEP(block);
	return block;
}

struct releases {
	void *block;
	~releases();
};

// Runs while the exception passes.
SITE releases::~releases()
{
	std::free(block);
	KEEP(climb_site(11));
}

SITE void climb(int level)
{
	if (level == levels)
		throw std::runtime_error("at the top");
	releases here{climb_site(103)};
	climb(level + 1);
	KEEP(here.block);
}

SITE void handle()
{
	try {
		climb(0);
	} catch (const std::runtime_error &) {
		KEEP(climb_site(107));
	}
}

int main()
{
	for (int round = 0; round < rounds; round++)
		handle();
	return 0;
}
