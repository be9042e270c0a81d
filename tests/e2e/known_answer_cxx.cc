// SPDX-License-Identifier: BSD-2-Clause
// Calls each form of C++ new and delete from a function of its own, a prime number of times with
// prime sizes, and prints what a recording must therefore say of each function, as JSON.
#include "program.h"

#include <cstddef>
#include <new>

namespace
{

struct small {
	char bytes[31];
};

struct with_destructor {
	char bytes[37];
	~with_destructor()
	{
		KEEP(bytes);
	}
};

struct alignas(128) over_aligned {
	char bytes[256];
};

void *live[2048];
std::size_t live_count;

template <typename T> T *keep(T *block)
{
	REQUIRE(block && live_count < sizeof(live) / sizeof(*live));
	live[live_count++] = block;
	return block;
}

} // namespace

SITE small *cxx_new()
{
	small *object = new small;
	KEEP(object);
	return object;
}

SITE char *cxx_new_array()
{
	char *array = new char[101];
	KEEP(array);
	return array;
}

SITE small *cxx_new_nothrow()
{
	small *object = new (std::nothrow) small;
	KEEP(object);
	return object;
}

SITE over_aligned *cxx_new_aligned()
{
	over_aligned *object = new over_aligned;
	KEEP(object);
	return object;
}

// An array of objects with destructors carries their number in front: 8 bytes more.
SITE with_destructor *cxx_new_objects()
{
	with_destructor *objects = new with_destructor[3];
	KEEP(objects);
	return objects;
}

// new and delete one after the other: each object is temporary. The delete is the sized one.
SITE void cxx_temporary()
{
	small *object = new small;
	KEEP(object);
	delete object;
	BARRIER();
}

SITE void cxx_direct_operators()
{
	void *block = ::operator new(41);
	void *other = ::operator new(128, std::align_val_t(64));
	KEEP(block);
	KEEP(other);
	::operator delete(block, std::size_t(41));
	::operator delete(other, std::size_t(128), std::align_val_t(64));
	BARRIER();
}

// The nothrow form may throw and catch inside, and allocate the exception for it.
SITE void cxx_refused()
{
	volatile std::size_t too_much = ~std::size_t(0) / 4;
	char *array = new (std::nothrow) char[too_much];
	KEEP(array);
	REQUIRE(!array);
}

namespace
{

void call_sites()
{
	for (int n = 0; n < 107; n++)
		keep(cxx_new());
	for (int n = 0; n < 109; n++)
		keep(cxx_new_array());
	for (int n = 0; n < 113; n++)
		keep(cxx_new_nothrow());
	for (int n = 0; n < 127; n++)
		keep(cxx_new_aligned());
	for (int n = 0; n < 131; n++)
		keep(cxx_new_objects());
	for (int n = 0; n < 137; n++)
		cxx_temporary();
	for (int n = 0; n < 139; n++)
		cxx_direct_operators();
	cxx_refused();
}

// Forms of delete, on blocks of each kind.
void release_some()
{
	small *object = cxx_new();
	char *array = cxx_new_array();
	over_aligned *aligned = cxx_new_aligned();
	with_destructor *objects = cxx_new_objects();

	delete object;
	delete[] array;
	delete aligned;
	delete[] objects;
}

} // namespace

int main()
{
	call_sites();
	release_some();
	puts("["
	     "{\"function\": \"cxx_new()\", \"alloc_objects\": 108, \"alloc_bytes\": 3348,"
	     " \"inuse_objects\": 107, \"inuse_bytes\": 3317, \"temporary_objects\": 0},\n"
	     "{\"function\": \"cxx_new_array()\", \"alloc_objects\": 110, \"alloc_bytes\": 11110,"
	     " \"inuse_objects\": 109, \"inuse_bytes\": 11009, \"temporary_objects\": 0},\n"
	     "{\"function\": \"cxx_new_nothrow()\", \"alloc_objects\": 113, \"alloc_bytes\": 3503,"
	     " \"inuse_objects\": 113, \"inuse_bytes\": 3503, \"temporary_objects\": 0},\n"
	     "{\"function\": \"cxx_new_aligned()\", \"alloc_objects\": 128, \"alloc_bytes\": 32768,"
	     " \"inuse_objects\": 127, \"inuse_bytes\": 32512, \"temporary_objects\": 0},\n"
	     "{\"function\": \"cxx_new_objects()\", \"alloc_objects\": 132, \"alloc_bytes\": 15708,"
	     " \"inuse_objects\": 131, \"inuse_bytes\": 15589, \"temporary_objects\": 0},\n"
	     "{\"function\": \"cxx_temporary()\", \"alloc_objects\": 137, \"alloc_bytes\": 4247,"
	     " \"inuse_objects\": 0, \"inuse_bytes\": 0, \"temporary_objects\": 137},\n"
	     "{\"function\": \"cxx_direct_operators()\", \"alloc_objects\": 278,"
	     " \"alloc_bytes\": 23491, \"inuse_objects\": 0, \"inuse_bytes\": 0,"
	     " \"temporary_objects\": 0},\n"
	     "{\"function\": \"cxx_refused()\", \"inuse_objects\": 0, \"inuse_bytes\": 0}]");
	return 0;
}
