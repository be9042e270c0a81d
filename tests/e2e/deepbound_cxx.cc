// SPDX-License-Identifier: BSD-2-Clause
// A library of C++ that is opened with RTLD_DEEPBIND.
#include "deepbind.h"

#include <new>

extern "C" EXPORTED SITE void *cxx_make(size_t bytes)
{
	void *block = ::operator new(bytes);

	KEEP(block);
	return block;
}

extern "C" EXPORTED SITE void cxx_give(void *block)
{
	::operator delete(block);
	BARRIER();
}
