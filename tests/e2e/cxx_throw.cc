// SPDX-License-Identifier: BSD-2-Clause
// A C++ program whose stacks are of every kind: exceptions across 100 frames, signal handlers that
// allocate, also on an alternate stack, realigned frames, alloca, coroutines, threads, the C++
// library's own deep calls. It allocates from all of them and prints "ok".
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <locale>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <thread>
#include <ucontext.h>
#include <vector>

#define NOINLINE __attribute__((noinline))

namespace
{

volatile unsigned sink;

NOINLINE void allocate(unsigned bytes)
{
	void *volatile block = std::malloc(bytes + 1);
	sink = sink + (block != nullptr);
	std::free(block);
}

struct Guard {
	std::string text;
	explicit Guard(unsigned depth) : text(40 + depth, 'x')
	{
	}
	~Guard()
	{
		allocate(64);
	} // runs while the stack is being unwound
};

NOINLINE unsigned throw_from(unsigned depth)
{
	Guard guard(depth);
	if (!depth)
		throw std::runtime_error("thrown from the innermost frame of them all");
	return throw_from(depth - 1) + static_cast<unsigned>(guard.text.size());
}

NOINLINE void exceptions()
{
	for (unsigned i = 0; i < 30; i++) {
		try {
			throw_from(100);
		} catch (const std::exception &error) {
			std::string copy = error.what();
			sink = sink + static_cast<unsigned>(copy.size());
		}
	}
}

NOINLINE void rethrow(unsigned depth)
{
	try {
		if (depth)
			rethrow(depth - 1);
		else
			throw_from(5);
	} catch (...) {
		allocate(32);
		throw;
	}
}

// The prologue realigns the stack: the CFA is found through a saved pointer, not by an offset.
NOINLINE unsigned realigned(unsigned depth)
{
	alignas(64) volatile char buffer[192];
	char *volatile extra = static_cast<char *>(alloca(16 + depth * 8 % 256));
	extra[0] = static_cast<char>(depth);
	buffer[depth % 192] = extra[0];
	allocate(depth);
	unsigned below = depth ? realigned(depth - 1) : 0;
	return below + static_cast<unsigned>(buffer[depth % 192]);
}

__attribute__((noinline, force_align_arg_pointer)) unsigned forced(unsigned depth)
{
	allocate(depth);
	return depth ? forced(depth - 1) + 1 : realigned(5);
}

// Every tick of the timer lands somewhere else: prologues, epilogues, PLT entries, the vdso.
volatile sig_atomic_t ticks;

void on_tick(int)
{
	ticks = ticks + 1;
	for (unsigned i = 0; i < 5; i++)
		allocate(i);
	if (ticks % 4 == 0)
		realigned(3);
}

double spin_alignments(unsigned count)
{
	alignas(64) volatile double values[16] = {};
	for (unsigned i = 0; i < count; i++)
		values[i % 16] = values[(i + 1) % 16] + std::strtod("1.25", nullptr);
	return values[3];
}

unsigned spin_calls(unsigned depth)
{
	return depth ? spin_calls(depth - 1) + std::strlen("called through the PLT") % 7 : 1;
}

// Nothing in here allocates, so a handler that does is not a deadlock.
NOINLINE void spin(unsigned milliseconds)
{
	timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	int64_t elapsed;
	do {
		sink = sink + spin_calls(20) + static_cast<unsigned>(spin_alignments(20));
		for (unsigned i = 0; i < 20; i++)
			clock_gettime(CLOCK_MONOTONIC, &now);
		elapsed = (now.tv_sec - start.tv_sec) * 1000 +
			  (now.tv_nsec - start.tv_nsec) / 1000000;
	} while (elapsed < milliseconds);
}

void signals(bool on_alternate_stack)
{
	std::vector<char> stack(256 << 10);
	stack_t alternate = {};
	alternate.ss_sp = stack.data();
	alternate.ss_size = stack.size();
	sigaltstack(&alternate, nullptr);
	struct sigaction action = {};
	action.sa_handler = on_tick;
	action.sa_flags = SA_RESTART | (on_alternate_stack ? SA_ONSTACK : 0);
	sigaction(SIGALRM, &action, nullptr);
	itimerval timer = {{0, 500}, {0, 500}};
	setitimer(ITIMER_REAL, &timer, nullptr);
	spin(600);
	timer = {};
	setitimer(ITIMER_REAL, &timer, nullptr);
	alternate.ss_flags = SS_DISABLE;
	sigaltstack(&alternate, nullptr);
}

// A fault in a leaf without a frame of its own; the handler allocates and jumps out.
sigjmp_buf fault_exit;

void on_fault(int)
{
	allocate(100);
	forced(3);
	siglongjmp(fault_exit, 1);
}

NOINLINE unsigned read_through(const volatile unsigned *address)
{
	return *address;
}

void faults()
{
	struct sigaction action = {};
	action.sa_handler = on_fault;
	sigaction(SIGSEGV, &action, nullptr);
	unsigned *volatile nowhere =
		nullptr; /* volatile: compilers must not see what comes of it */
	for (unsigned i = 0; i < 50; i++)
		if (!sigsetjmp(fault_exit, 1))
			sink = sink + read_through(nowhere);
}

// Two stacks of their own that switch back and forth in the midst of frames.
ucontext_t main_context, coroutine_contexts[2];

NOINLINE void yield_at(unsigned self, unsigned depth)
{
	allocate(depth);
	if (depth)
		yield_at(self, depth - 1);
	else
		swapcontext(&coroutine_contexts[self], &main_context);
	allocate(depth + 1);
}

void run_coroutine(unsigned self)
{
	for (unsigned i = 0; i < 40; i++)
		yield_at(self, i % 13);
}

void coroutines()
{
	std::vector<std::vector<char>> stacks(2, std::vector<char>(64 << 10));
	for (unsigned i = 0; i < 2; i++) {
		getcontext(&coroutine_contexts[i]);
		coroutine_contexts[i].uc_stack.ss_sp = stacks[i].data();
		coroutine_contexts[i].uc_stack.ss_size = stacks[i].size();
		coroutine_contexts[i].uc_link = &main_context;
		makecontext(&coroutine_contexts[i], reinterpret_cast<void (*)()>(run_coroutine), 1,
			    i);
	}
	for (unsigned i = 0; i < 82; i++)
		swapcontext(&main_context, &coroutine_contexts[i % 2]);
}

int compare_allocating(const void *a, const void *b)
{
	allocate(8);
	return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

void library()
{
	std::regex pattern("([a-z]+)(\\d*)(x|y|(z[0-9]{1,3}))*");
	std::map<std::string, std::function<unsigned(unsigned)>> functions;
	for (unsigned i = 0; i < 60; i++) {
		std::ostringstream text;
		text.imbue(std::locale(""));
		text << "name" << i << ' ' << 1.5 * i << "xyz" << i;
		std::smatch match;
		std::string subject = text.str();
		std::regex_search(subject, match, pattern);
		functions[subject] = [subject](unsigned n) { return n + unsigned(subject.size()); };
	}
	for (auto &entry : functions)
		sink = sink + entry.second(1);
	int numbers[64];
	for (int i = 0; i < 64; i++)
		numbers[i] = i * 37 % 64;
	std::qsort(numbers, 64, sizeof(numbers[0]), compare_allocating);
}

NOINLINE unsigned deep(unsigned depth)
{
	volatile unsigned below = 0;
	if (depth % 97 == 0)
		allocate(depth);
	if (depth)
		below = deep(depth - 1);
	return below + 1;
}

void all(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		exceptions();
		try {
			rethrow(20);
		} catch (const std::runtime_error &) {
			allocate(1);
		}
		forced(20);
		realigned(30);
		library();
	}
}

} // namespace

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 5;
	all(rounds);
	std::thread threads[2] = {std::thread(all, rounds), std::thread(all, rounds)};
	for (std::thread &thread : threads)
		thread.join();
	signals(false);
	signals(true);
	faults();
	coroutines();
	deep(2500);
	std::cout << "ok " << (ticks > 0) << std::endl;
	return 0;
}
