/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of Python without a process at hand; see guests/traits.h. */
#include "guests/traits.h"

static const char *const providers[] = {"python", NULL};

static const char *const plumbing[] = {
	"PyMem_*",
	"_PyMem_*",
	"PyObject_Malloc",
	"PyObject_Calloc",
	"PyObject_Realloc",
	"_PyObject_MallocWithType",
	"_PyObject_ReallocWithType",
	"gc_alloc",
	"_PyType_AllocNoTrack",
	"_PyObject_Malloc",
	"_PyObject_Calloc",
	"_PyObject_Realloc",
	"_PyObject_AllocateArena",
	"_PyObject_Arena*",
	"pymalloc_alloc",
	"pymalloc_realloc",
	"allocate_from_new_pool",
	"new_arena",
	"arena_map_*",
	NULL,
};

static const char *const plumbing_files[] = {"_ctypes.", NULL};

static const struct hl_guest_command commands[] = {
	{"python", "-W -X --check-hash-based-pycs", "-m", "-c"},
	{"pypy", "-W -X", "-m", "-c"},
	{0},
};

static const struct hl_guest_start starts[] = {
	{"Py_InitializeFromConfig", "python", "Python's start"},
	{0},
};

const struct hl_guest_traits hl_guest_traits_python = {
	.language = "Python",
	.providers = providers,
	.plumbing = plumbing,
	.plumbing_files = plumbing_files,
	.commands = commands,
	.starts = starts,
	.main_function = "_PyEval_EvalFrame",
	.program = "python",
	.library = "libpython",
	.objects = "small objects of Python",
	.lists_objects = "--python-types",
	/* Objects that are cut from arenas, which are mapped; asked for by --hook @python */
	.presets = "preset python\n"
		   "malloc=PyObject_Malloc\n"
		   "calloc=PyObject_Calloc\n"
		   "realloc=PyObject_Realloc\n"
		   "free=PyObject_Free\n"
		   "malloc=PyMem_Malloc\n"
		   "calloc=PyMem_Calloc\n"
		   "realloc=PyMem_Realloc\n"
		   "free=PyMem_Free\n",
	.hidden_loop_remedy =
		"use a CPython that is built with its loop in _PyEval_EvalFrameDefault()",
	.generated_remedy = "run it with PYTHON_JIT=0",
	.no_types_reason = "types of Python's objects are read from the process while it runs: "
			   "name its recording "
			   "then, or a snapshot of 'heapline ctl -p PID snapshot OUT.hl'",
};
