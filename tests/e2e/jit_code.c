/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates below code that it made itself, and writes jit-PID.dump in the working directory as a
 * runtime does: the first piece of code lies where another one lay, the second one has been moved.
 *
 * Usage: jit_code [- | wait]
 *
 *	-	without that file
 *	wait	says "ready" before it allocates, and "done" after that; each time goes on at the next line of input
 */
#include "program.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LOAD, MOVE };

/* void *made(size_t bytes, void *allocate(size_t)), in a frame with a frame pointer */
static const uint8_t made[] = {
	0x55,		  /* push %rbp */
	0x48, 0x89, 0xe5, /* mov %rsp,%rbp */
	0xff, 0xd6,	  /* call *%rsi */
	0x5d,		  /* pop %rbp */
	0xc3,		  /* ret */
};

typedef void *made_fn(size_t bytes, void *allocate(size_t bytes));

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void put(FILE *dump, const void *bytes, size_t size)
{
	REQUIRE(fwrite(bytes, 1, size, dump) == size);
}

static void put_record(FILE *dump, uint32_t kind, uint64_t time_ns, const uint64_t *body,
		       size_t words, const char *name)
{
	size_t name_bytes = name ? strlen(name) + 1 : 0;
	uint32_t head[2] = {kind, (uint32_t)(16 + 8 * words + name_bytes)};

	put(dump, head, sizeof(head));
	put(dump, &time_ns, sizeof(time_ns));
	put(dump, body, 8 * words);
	put(dump, name, name_bytes);
}

static void load(FILE *dump, uint64_t time_ns, const void *code, uint64_t index, const char *name)
{
	const uint64_t at = (uint64_t)(uintptr_t)code;
	const uint64_t body[] = {0, at, at, sizeof(made), index};

	put_record(dump, LOAD, time_ns, body, 5, name);
}

static void write_dump(const uint8_t *code)
{
	char name[32];

	snprintf(name, sizeof(name), "jit-%d.dump", getpid());
	FILE *dump = fopen(name, "w");
	REQUIRE(dump);
	uint64_t now = now_ns(), later = now + UINT64_C(3600) * 1000000000;
	const uint32_t head[] = {0x4a695444, 1, 40, 62, 0, (uint32_t)getpid()};
	const uint64_t times[] = {now, 0};
	put(dump, head, sizeof(head));
	put(dump, times, sizeof(times));
	load(dump, now + 1, code, 2, "newer");
	load(dump, now, code, 1, "older");
	load(dump, later, code, 3, "not yet");
	load(dump, now, code + 64, 4, "moved");
	const uint64_t to = (uint64_t)(uintptr_t)code + 4096;
	const uint64_t move[] = {0, to, to - 4096 + 64, to, sizeof(made), 4};
	put_record(dump, MOVE, now + 1, move, 6, NULL);
	REQUIRE(!fclose(dump));
}

static void wait_after(const char *word)
{
	puts(word);
	fflush(stdout);
	for (int c; (c = getchar()) != '\n' && c != EOF;)
		;
}

int main(int argc, char **argv)
{
	uint8_t *code =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(code != MAP_FAILED);
	memcpy(code, made, sizeof(made));
	memcpy(code + 4096, made, sizeof(made));
	REQUIRE(!mprotect(code, 8192, PROT_READ | PROT_EXEC));
	bool waits = argc > 1 && !strcmp(argv[1], "wait");
	if (argc == 1 || waits)
		write_dump(code);
	if (waits)
		wait_after("ready");
	for (int i = 0; i < 10; i++) {
		KEEP(((made_fn *)(uintptr_t)code)(1000, malloc));
		KEEP(((made_fn *)(uintptr_t)(code + 4096))(3000, malloc));
	}
	if (waits)
		wait_after("done");
	return 0;
}
