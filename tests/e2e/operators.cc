/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates by operators new, for each line that it reads, and says for each function the blocks and
 * bytes that it has allocated, and those that it has kept. With an argument some are refused, with an
 * exception.
 */
#include "program.h"

#include <cstdint>
#include <cstring>
#include <new>

#define ROUNDS 1000

struct alignas(64) aligned {
	char bytes[192];
};

struct figures {
	size_t blocks, bytes, kept_blocks, kept_bytes;
};

static void give(figures *by, size_t size, bool kept)
{
	by->blocks++;
	by->bytes += size;
	by->kept_blocks += kept;
	by->kept_bytes += kept ? size : 0;
}

extern "C" SITE void by_new(figures *by);
SITE void by_new(figures *by)
{
	for (size_t i = 0; i < ROUNDS; i++) {
		void *block = ::operator new(i);
		KEEP(block);
		give(by, i, i % 3 == 0);
		if (i % 3 == 1)
			::operator delete(block);
		else if (i % 3 == 2)
			::operator delete(block, i);
	}
}

extern "C" SITE void by_array(figures *by);
SITE void by_array(figures *by)
{
	for (size_t i = 1; i < ROUNDS; i++) {
		char *block = i % 2 ? new char[i] : new (std::nothrow) char[i];
		KEEP(block);
		give(by, i, i % 4 == 0);
		if (i % 4)
			delete[] block;
	}
}

extern "C" SITE void by_alignment(figures *by);
SITE void by_alignment(figures *by)
{
	for (size_t i = 0; i < ROUNDS; i++) {
		aligned *block = new aligned;
		KEEP(block);
		REQUIRE((uintptr_t)block % 64 == 0);
		give(by, sizeof(*block), i % 2);
		if (i % 2 == 0)
			delete block;
	}
}

extern "C" SITE void by_refusal(figures *by);
SITE void by_refusal(figures *by)
{
	volatile size_t too_large = SIZE_MAX / 4;
	int caught = 0;

	for (int i = 0; i < 10; i++) {
		try {
			KEEP(::operator new(too_large));
		} catch (const std::bad_alloc &) {
			caught++;
		}
		KEEP(::operator new(too_large, std::nothrow));
		KEEP(::operator new(10));
		give(by, 10, true);
	}
	REQUIRE(caught == 10);
}

int main(int argc, char **)
{
	static const struct {
		const char *name;
		void (*run)(figures *);
	} functions[] = {{"by_new", by_new},
			 {"by_array", by_array},
			 {"by_alignment", by_alignment},
			 {"by_refusal", by_refusal}};
	char line[64];

	setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		for (const auto &function : functions) {
			figures by = {};
			if (function.run == by_refusal && argc == 1)
				continue;
			function.run(&by);
			printf("%s %zu %zu %zu %zu\n", function.name, by.blocks, by.bytes,
			       by.kept_blocks, by.kept_bytes);
		}
		puts("done");
	}
	return 0;
}
