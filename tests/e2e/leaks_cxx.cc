// SPDX-License-Identifier: BSD-2-Clause
// A C++ program with known leaks, and with objects that are kept in ways of their own; or one that
// loses nothing while two threads move blocks about at full speed: leaks_cxx [busy|queue]
//
// Says by `lost BYTES` what all lost blocks take together, then "ready", and waits for the end of
// its input.
#include "program.h"

#include "wipe.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace
{

std::size_t counted;
bool counts;

} // namespace

void *operator new(std::size_t size)
{
	void *block = std::malloc(size);

	if (!block)
		std::abort();
	// What an earlier owner left there, half overwritten, may look like any pointer.
	std::memset(block, 0, malloc_usable_size(block));
	if (counts)
		counted += malloc_usable_size(block);
	return block;
}

void operator delete(void *block) noexcept
{
	if (counts && block)
		counted -= malloc_usable_size(block);
	std::free(block);
}

void operator delete(void *block, std::size_t) noexcept
{
	operator delete(block);
}

namespace zoo
{

struct animal {
	virtual ~animal() = default;
	long age = 1;
};

struct swimmer {
	virtual ~swimmer() = default;
	virtual void swim()
	{
	}
	long depth = 2;
};

struct duck : animal, swimmer {
	std::string name = "a duck with a name that is too long to lie within the string itself";
	void swim() override
	{
		depth++;
	}
};

struct parent {
	std::shared_ptr<parent> partner;
	char pad[100] = {};
};

struct alignas(32) aligned {
	char bytes[64];
	~aligned()
	{
		bytes[0] = 1;
	}
};

} // namespace zoo

namespace
{

// What a program keeps by other pointers than those to the start of blocks.
zoo::swimmer *volatile kept_base;
std::string *volatile kept_array;
zoo::aligned *volatile kept_aligned;
std::map<int, std::string> kept_map;
std::unordered_map<std::string, std::vector<int>> kept_table;

__attribute__((noinline)) void keep()
{
	kept_base = new zoo::duck;
	kept_array = new std::string[10];
	for (int i = 0; i < 10; i++)
		kept_array[i] = std::string(50, 'k');
	kept_aligned = new zoo::aligned[5];
	for (int i = 0; i < 1000; i++) {
		kept_map[i] = std::string(40, 'm');
		kept_table[std::to_string(i) + std::string(30, 't')].assign(20, i);
	}
}

__attribute__((noinline)) void plant()
{
	for (int i = 0; i < 100; i++)
		KEEP(new zoo::duck);
	auto *map = new std::map<int, std::string>;
	auto *list = new std::list<std::vector<int>>;
	auto *table = new std::unordered_map<int, std::string>;
	for (int i = 0; i < 300; i++) {
		(*map)[i] = std::string(60, 'x');
		list->emplace_back(30, i);
		(*table)[i] = std::string(70, 'y');
	}
	KEEP(new std::string(1000, 'z'));
	KEEP(map);
	KEEP(list);
	KEEP(table);
	auto one = std::make_shared<zoo::parent>(), two = std::make_shared<zoo::parent>();
	one->partner = two;
	two->partner = one;
}

/* Maps that grow, rehash and shrink, and lists that go from one to the other. */
void spin(unsigned number)
{
	std::unordered_map<unsigned, std::unique_ptr<std::string>> map;
	std::list<std::vector<unsigned>> one, other;

	for (unsigned i = 0;; i++) {
		map[number += 2654435761u].reset(new std::string(i % 200, 'b'));
		one.emplace_back(i % 30, i);
		if (i % 3 == 0)
			other.splice(other.begin(), one, one.begin());
		if (i % 7 == 0)
			std::swap(one, other);
		if (i % 5000 == 0)
			map.rehash(i % 20000);
		if (i % 25000 == 0) {
			map.clear();
			one.clear();
			other.clear();
		}
	}
}

/* A queue without a lock: one thread adds blocks, another one takes and frees them. */
struct node {
	std::atomic<node *> next{nullptr};
	std::unique_ptr<std::string> text;
};

std::atomic<node *> oldest, newest; // the oldest one was taken already
std::atomic<unsigned> waiting;

void add_to_queue()
{
	for (unsigned i = 0;; i++) {
		if (waiting > 10000)
			continue;
		node *added = new node;
		added->text.reset(new std::string(i % 100, 'q'));
		newest.load()->next.store(added);
		newest.store(added);
		waiting++;
	}
}

void take_from_queue()
{
	for (;;) {
		node *taken = oldest.load(), *next = taken->next.load();
		// The other thread may still hold the last one.
		if (!next || taken == newest.load())
			continue;
		oldest.store(next);
		delete taken;
		waiting--;
	}
}

} // namespace

int main(int argc, char **argv)
{
	static char output[4096];
	char letter;

	setvbuf(stdout, output, _IOFBF, sizeof(output));
	if (argc > 1 && std::strcmp(argv[1], "queue") == 0) {
		oldest = newest = new node;
		std::thread(add_to_queue).detach();
		std::thread(take_from_queue).detach();
	} else if (argc > 1) {
		std::thread(spin, 1).detach();
		std::thread(spin, 2).detach();
	}
	keep();
	counts = true;
	if (argc == 1)
		plant();
	counts = false;
	wipe();
	std::printf("lost %zu\nready\n", counted);
	std::fflush(stdout);
	while (read(STDIN_FILENO, &letter, 1) > 0)
		;
	_exit(0);
}
