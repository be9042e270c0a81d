// SPDX-License-Identifier: BSD-2-Clause
/*
 * Allocates on known lines: whoever reads this file finds after a line "=" what the line itself
 * allocates, and after it "+" what it calls allocates, in bytes and blocks. See
 * test_source_lines.py.
 */
#include <cstdlib>
#include <thread>

static void *volatile kept; // so that no call is optimized away

static inline __attribute__((always_inline)) void keep_inlined(std::size_t size)
{
	kept = std::malloc(size); // = 102292 32
}

template <class T> __attribute__((noinline)) void keep_many(int count)
{
	for (int i = 0; i < count; i++)
		keep_inlined(sizeof(T)); // + 102292 32
}

struct small {
	char bytes[101];
};

struct large {
	char bytes[10007];
};

/* Recursion counts once, in the line that begins it. */
__attribute__((noinline)) int descend(int depth)
{
	if (depth == 0) {
		kept = std::malloc(211); // = 211 1
		return 0;
	}
	int below = descend(depth - 1); // + 1439 5
	kept = std::malloc(307);	// = 1535 5
	return below + 1;
}

/* Two lines in one statement, each with its own call. */
__attribute__((noinline)) void keep_two()
{
	kept = std::malloc(503);  // = 503 1
	kept = std::malloc(1009); // = 1009 1
}

int main()
{
	keep_many<small>(22); // + 2222 22
	keep_many<large>(7);  // + 70049 7
	descend(5);	      // + 1746 6
	std::thread worker([] {
		keep_many<large>(3); // + 30021 3
	});
	worker.join();
	keep_two(); // + 1512 2
	return 0;
}
