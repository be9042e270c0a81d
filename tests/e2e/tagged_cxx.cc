// SPDX-License-Identifier: BSD-2-Clause
// Allocates by C++'s operators with libheapline-tags.so preloaded: tags lead to the callers of new,
// new that fails throws, and every delete fits every new. Status 1 when not.
#include "tags/tag_word.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

static int wrong;

static void complain(const char *of)
{
	std::printf("wrong: %s\n", of);
	wrong = 1;
}

static void check(const char *of, void *block)
{
	uint64_t word;
	char *end = static_cast<char *>(block) + malloc_usable_size(block) + HL_TAG_WORD_BYTES;
	Dl_info module;
	std::memcpy(&word, end - sizeof(word), sizeof(word));
	if (!hl_tag_word_is_valid(word, reinterpret_cast<uint64_t>(end)) ||
	    !dladdr(reinterpret_cast<void *>(hl_tag_address_of_word(word)), &module) ||
	    !std::strstr(module.dli_fname, "tagged_cxx"))
		complain(of);
}

struct alignas(64) Wide {
	char bytes[100];
};

static void check_new()
{
	int *one = new int;
	check("new", one);
	delete one;
	char *many = new char[1000];
	check("new[]", many);
	delete[] many;
	int *quiet = new (std::nothrow) int;
	check("new nothrow", quiet);
	delete quiet;
	Wide *wide = new Wide;
	check("aligned new", wide);
	if (reinterpret_cast<uintptr_t>(wide) % 64)
		complain("alignment");
	delete wide;
	Wide *wides = new Wide[3];
	check("aligned new[]", wides);
	delete[] wides;
	for (size_t size = 1; size < 5000; size += 37) {
		void *block = ::operator new(size);
		check("operator new", block);
		::operator delete(block, size);
	}
}

static void check_failure()
{
	volatile size_t most = SIZE_MAX / 2 - 100;
	bool thrown = false;
	try {
		::operator delete(::operator new(most));
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	if (!thrown || ::operator new(most, std::nothrow))
		complain("new of too much");
}

// With an argument: memory is always there. mimalloc's new ends the program instead of throwing.
int main(int argc, char **)
{
	check_new();
	if (argc == 1)
		check_failure();
	std::map<std::string, std::vector<int>> map;
	for (int i = 0; i < 1000; i++)
		map[std::to_string(i) + " is a key that is too long to lie within"] =
			std::vector<int>(static_cast<size_t>(i));
	return wrong;
}
