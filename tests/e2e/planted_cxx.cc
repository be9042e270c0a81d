// SPDX-License-Identifier: BSD-2-Clause
// Programs in C++ that lose objects: planted_cxx KIND; without a KIND, names all. See planted.h.
#include "planted.h"

#include <any>
#include <deque>
#include <forward_list>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <queue>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

static bool counts;

void *operator new(std::size_t size)
{
	void *block = malloc(size);

	if (!block)
		abort();
	// What an earlier owner left there, half overwritten, may look like any pointer.
	memset(block, 0, malloc_usable_size(block));
	if (counts)
		note_planted(block);
	return block;
}

void *operator new(std::size_t size, std::align_val_t alignment)
{
	void *block = nullptr;

	if (posix_memalign(&block, std::size_t(alignment), size))
		abort();
	memset(block, 0, malloc_usable_size(block));
	if (counts)
		note_planted(block);
	return block;
}

void operator delete(void *block) noexcept
{
	if (counts && block)
		forget_planted(block);
	if (block)
		memset(block, 0, malloc_usable_size(block));
	free(block);
}

void operator delete(void *block, std::size_t) noexcept
{
	operator delete(block);
}

void operator delete(void *block, std::align_val_t) noexcept
{
	operator delete(block);
}

void operator delete(void *block, std::size_t, std::align_val_t) noexcept
{
	operator delete(block);
}

namespace
{

struct base {
	virtual ~base() = default;
	long number = 1;
};

struct second_base {
	virtual ~second_base() = default;
	long other = 2;
};

struct derived : base {
	std::string name = "a name that is too long to lie within the string itself";
};

struct twice_derived : base, second_base {
	std::vector<long> numbers = std::vector<long>(20);
};

struct virtual_left : virtual base {
	long left = 3;
};

struct virtual_right : virtual base {
	long right = 4;
};

struct diamond : virtual_left, virtual_right {
	std::unique_ptr<base> part = std::make_unique<derived>();
};

struct parent;

struct child {
	std::shared_ptr<parent> up;
};

struct parent {
	std::vector<std::shared_ptr<child>> down;
};

struct hidden {
	struct parts {
		std::string text = std::string(100, 'h');
	};
	std::unique_ptr<parts> own = std::make_unique<parts>();
};

struct link {
	std::unique_ptr<link> next;
	std::string text = std::string(40, 'l');
};

struct subject {
	std::vector<std::function<void()>> observers;
};

template <typename T> void lose(T *object)
{
	__asm__ volatile("" : : "r"(object) : "memory");
}

template <typename T> T *filled(int count)
{
	T *container = new T;

	for (int i = 0; i < count; i++)
		container->insert(container->end(), typename T::value_type(40, 'c'));
	return container;
}

template <typename T> T *filled_map(int count)
{
	T *container = new T;

	for (int i = 0; i < count; i++)
		container->emplace(i, std::string(40, 'm'));
	return container;
}

const std::pair<const char *, void (*)()> kinds[] = {
	{"int", [] { lose(new int(1)); }},
	{"array_of_int", [] { lose(new int[100]); }},
	{"array_with_count", [] { lose(new std::string[10]); }},
	{"derived", [] { lose<base>(new derived); }},
	{"second_base", [] { lose<second_base>(new twice_derived); }},
	{"virtual_base", [] { lose<base>(new diamond); }},
	{"array_of_derived", [] { lose(new derived[5]); }},
	{"string", [] { lose(new std::string(1000, 's')); }},
	{"vector", [] { lose(new std::vector<long>(100)); }},
	{"vector_of_strings", [] { lose(filled<std::vector<std::string>>(20)); }},
	{"vector_of_pointers",
	 [] {
		 auto *all = new std::vector<std::unique_ptr<base>>;
		 for (int i = 0; i < 10; i++)
			 all->push_back(std::make_unique<derived>());
		 lose(all);
	 }},
	{"vectors_in_vectors",
	 [] {
		 using numbers = std::vector<long>;
		 lose(new std::vector<std::vector<numbers>>(4,
							    std::vector<numbers>(4, numbers(4))));
	 }},
	{"list", [] { lose(filled<std::list<std::string>>(20)); }},
	{"forward_list",
	 [] { lose(new std::forward_list<std::string>(20, std::string(40, 'f'))); }},
	{"deque", [] { lose(filled<std::deque<std::string>>(100)); }},
	{"set", [] { lose(filled<std::multiset<std::string>>(20)); }},
	{"unordered_set", [] { lose(filled<std::unordered_multiset<std::string>>(20)); }},
	{"map", [] { lose(filled_map<std::map<int, std::string>>(20)); }},
	{"unordered_map", [] { lose(filled_map<std::unordered_map<int, std::string>>(20)); }},
	{"priority_queue",
	 [] {
		 auto *queue = new std::priority_queue<std::string>;
		 for (int i = 0; i < 20; i++)
			 queue->push(std::string(40, 'q'));
		 lose(queue);
	 }},
	{"released", [] { lose(std::make_unique<derived>().release()); }},
	{"cycle_of_shared",
	 [] {
		 auto up = std::make_shared<parent>();
		 for (int i = 0; i < 5; i++) {
			 up->down.push_back(std::make_shared<child>());
			 up->down.back()->up = up;
		 }
	 }},
	{"lost_shared", [] { lose(new std::shared_ptr<base>(new derived)); }},
	{"lost_weak", [] { lose(new std::weak_ptr<derived>(std::make_shared<derived>())); }},
	{"function",
	 [] {
		 lose(new std::function<int()>(
			 [big = std::string(200, 'f')] { return static_cast<int>(big.size()); }));
	 }},
	{"any", [] { lose(new std::any(std::vector<std::string>(5, std::string(40, 'a')))); }},
	{"promise", [] { lose(new std::promise<std::string>); }},
	{"stream",
	 [] {
		 auto *stream = new std::ostringstream;
		 *stream << std::string(300, 'o');
		 lose(stream);
	 }},
	{"monotonic",
	 [] {
		 auto *pool = new std::pmr::monotonic_buffer_resource(500);
		 lose(pool->allocate(100));
		 lose(pool->allocate(5000));
		 lose(pool);
	 }},
	{"hidden_parts", [] { lose(new hidden); }},
	{"owned_chain",
	 [] {
		 auto first = std::make_unique<link>();
		 for (int i = 0; i < 20; i++) {
			 auto next = std::make_unique<link>();
			 next->next = std::move(first);
			 first = std::move(next);
		 }
		 lose(first.release());
	 }},
	{"observers",
	 [] {
		 auto seen = std::make_shared<subject>();
		 for (int i = 0; i < 3; i++)
			 seen->observers.emplace_back([seen, text = std::string(50, 'o')] {});
	 }},
	{"placed", [] { lose(new (operator new(sizeof(twice_derived))) twice_derived); }},
};

__attribute__((noinline)) void plant(void (*kind)())
{
	counts = true;
	for (int i = 0; i < ROUNDS; i++)
		kind();
	counts = false;
}

} // namespace

int main(int argc, char **argv)
{
	for (const auto &kind : kinds)
		if (argc == 1)
			puts(kind.first);
		else if (strcmp(argv[1], kind.first) == 0)
			plant(kind.second);
	wipe();
	return argc == 1 ? 0 : wait_for_end();
}
