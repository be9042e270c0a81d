/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A plugin of QEMU's (plugin API, version 1; docs/devel/tcg-plugins of QEMU): counts the instructions that the emulated program runs,
 * and writes their number to file descriptor 3 as it ends. For programs in which one thread works at a time: threads share the count.
 */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

struct qemu_plugin_tb;
struct qemu_info_t;

enum { ADD_U64 }; /* the one operation that is done inline */

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
					   void (*call)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int operation,
					      void *number, uint64_t added);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*call)(uint64_t, void *), void *context);
int qemu_plugin_install(uint64_t id, const struct qemu_info_t *info, int argc, char **argv);

int qemu_plugin_version = 1;
static uint64_t count;

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
	(void)id;
	qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &count,
						 qemu_plugin_tb_n_insns(block));
}

static void end(uint64_t id, void *context)
{
	(void)id, (void)context;
	dprintf(3, "%lu\n", count);
}

int qemu_plugin_install(uint64_t id, const struct qemu_info_t *info, int argc, char **argv)
{
	(void)info, (void)argc, (void)argv;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, end, NULL);
	return 0;
}
