// SPDX-License-Identifier: BSD-2-Clause
// The C++ half of what test_bpf_heap.py needs: operator new and delete of every kind, one command
// a line on standard input, "ok" after each.
//
//	new COUNT SIZE		makes COUNT blocks of each kind of new, and keeps them
//	delete COUNT		deletes the last COUNT of each kind
//	throw COUNT		catches std::bad_alloc of a request for more than there is
#include "program.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <unistd.h>

namespace
{
constexpr size_t blocks_max = 100000;
constexpr std::align_val_t alignment{64};

void *plain[blocks_max], *arrays[blocks_max], *quiet[blocks_max], *aligned[blocks_max];
size_t kept, caught;

SITE void make(size_t count, size_t size)
{
	for (size_t i = 0; i < count; i++, kept++) {
		plain[kept] = ::operator new(size);
		arrays[kept] = ::operator new[](size);
		quiet[kept] = ::operator new(size, std::nothrow);
		aligned[kept] = ::operator new(size, alignment);
	}
	BARRIER();
}

SITE void unmake(size_t count, size_t size)
{
	for (size_t i = 0; i < count; i++) {
		kept--;
		::operator delete(plain[kept], size);
		::operator delete[](arrays[kept]);
		::operator delete(quiet[kept], std::nothrow);
		::operator delete(aligned[kept], alignment);
	}
	BARRIER();
}

SITE void fail(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		try {
			plain[kept] = ::operator new(SIZE_MAX / 4);
		} catch (const std::bad_alloc &) {
			caught++;
		}
		if (::operator new(SIZE_MAX / 4, std::nothrow))
			std::abort();
	}
}

void say(const char *text)
{
	if (write(STDOUT_FILENO, text, strlen(text)) < 0)
		_exit(1);
}

bool read_line(char *line, size_t capacity)
{
	for (size_t length = 0; length + 1 < capacity && read(STDIN_FILENO, line + length, 1) == 1;)
		if (line[length++] == '\n') {
			line[length - 1] = '\0';
			return true;
		}
	return false;
}
} // namespace

int main()
{
	char line[100], call[32];

	say("ready\n");
	while (read_line(line, sizeof(line))) {
		size_t count = 0, size = 0;
		if (sscanf(line, "%31s %zu %zu", call, &count, &size) < 2)
			return 1;
		if (strcmp(call, "new") == 0)
			make(count, size);
		else if (strcmp(call, "delete") == 0)
			unmake(count, size);
		else
			fail(count);
		say("ok\n");
	}
	return caught > 255 ? 255 : static_cast<int>(caught);
}
