// SPDX-License-Identifier: BSD-2-Clause
// Lambdas that the C++ library calls; all of it is inlined, and nothing of it has a linkage name.
#include <cstdlib>
#include <functional>
#include <thread>

void *kept[2]; // not static, so that what goes there is not optimized away

int main()
{
	std::thread thread([] { kept[0] = std::malloc(1009); });
	thread.join();
	std::function<void()> function = [] { kept[1] = std::malloc(2003); };
	function();
	return !kept[0];
}
