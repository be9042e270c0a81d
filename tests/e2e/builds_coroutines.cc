// SPDX-License-Identifier: BSD-2-Clause
/*
 * Coroutines of C++20 that keep what they allocate; see test_builds.py. Their frames come from operator new as well.
 */
#include <coroutine>
#include <cstdlib>

static void *volatile kept;

struct task {
	struct promise_type {
		task get_return_object()
		{
			return {std::coroutine_handle<promise_type>::from_promise(*this)};
		}
		std::suspend_always initial_suspend()
		{
			return {};
		}
		std::suspend_always final_suspend() noexcept
		{
			return {};
		}
		void return_void()
		{
		}
		void unhandled_exception()
		{
		}
	};
	std::coroutine_handle<promise_type> handle;
};

__attribute__((noinline)) static void leaf(std::size_t bytes)
{
	kept = std::malloc(bytes);
	__asm__ volatile("");
}

__attribute__((noinline)) task count_down(int rounds)
{
	for (int i = 0; i < rounds; i++) {
		leaf(101);
		co_await std::suspend_always{};
	}
}

__attribute__((noinline)) static void resume_all(std::coroutine_handle<task::promise_type> *handles,
						 int count)
{
	for (int i = 0; i < count; i++)
		handles[i].resume();
	__asm__ volatile("");
}

int main()
{
	static std::coroutine_handle<task::promise_type> handles[50];

	for (auto &handle : handles)
		handle = count_down(20).handle;
	for (int round = 0; round < 20; round++)
		resume_all(handles, 50);
	return 0;
}
