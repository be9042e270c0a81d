// SPDX-License-Identifier: BSD-2-Clause
// Names that only a demangler can read: templates, lambdas, operators, anonymous namespaces.
#include <cstdlib>

void *kept[8]; // not static, so that what goes there is not optimized away
static int count;

namespace
{
template <typename T, int N> struct Box {
	__attribute__((noinline)) void fill() const
	{
		kept[count++] = std::malloc(sizeof(T) * N);
	}
};
} // namespace

namespace shop
{
struct Cart {
	__attribute__((noinline)) Cart &operator+=(int size)
	{
		kept[count++] = std::malloc(static_cast<size_t>(size));
		return *this;
	}
};
} // namespace shop

int main()
{
	auto lambda = [](size_t size) __attribute__((noinline))
	{
		kept[count++] = std::malloc(size);
	};
	shop::Cart cart;

	Box<char, 100>().fill();
	Box<double, 10>().fill();
	cart += 300;
	lambda(400);
	return count != 4;
}
