/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An extension of Python that allocates and knows where it was called: what the interpreter itself
 * says of its frames.
 *
 *	allocate(size)		a block
 *	allocate_released(size)	the same while other threads run Python
 *	reset()			forgets what was known
 *	dump(path)		writes "BLOCKS BYTES FILE:LINE;...", outermost frame first, a line for each stack
 */
#include <Python.h>

#include <frameobject.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STACKS	   (1u << 13)
#define TEXT_BYTES 4000

struct stack {
	unsigned long blocks, bytes;
	char text[TEXT_BYTES];
};

static struct stack *stacks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#if PY_VERSION_HEX < 0x03090000
static PyCodeObject *code_of(PyFrameObject *frame)
{
	Py_INCREF(frame->f_code);
	return frame->f_code;
}

static PyFrameObject *outer_of(PyFrameObject *frame)
{
	Py_XINCREF(frame->f_back);
	return frame->f_back;
}
#else
#define code_of	 PyFrame_GetCode
#define outer_of PyFrame_GetBack
#endif

/* Writes the frames from ${frame} outward before ${end}; returns the start. */
static char *write_frames(PyFrameObject *frame, char *start, char *end)
{
	Py_XINCREF(frame);
	while (frame) {
		PyFrameObject *outer = outer_of(frame);
		PyCodeObject *code = code_of(frame);
		char line[512];
		int length =
			snprintf(line, sizeof(line), "%s:%d;", PyUnicode_AsUTF8(code->co_filename),
				 PyFrame_GetLineNumber(frame));
		if (end - start > length) {
			end -= length;
			memcpy(end, line, (size_t)length);
		}
		Py_DECREF(code);
		Py_DECREF(frame);
		frame = outer;
	}
	return end;
}

static void note(size_t bytes)
{
	char text[TEXT_BYTES], *end = text + sizeof(text) - 1;
	unsigned hash = 5381;

	*end = '\0';
	char *start = write_frames(PyEval_GetFrame(), text, end);
	for (const char *at = start; *at; at++)
		hash = hash * 33 + (unsigned char)*at;
	pthread_mutex_lock(&lock);
	struct stack *stack = &stacks[hash % STACKS];
	while (stack->blocks && strcmp(stack->text, start) != 0)
		stack = stack + 1 < stacks + STACKS ? stack + 1 : stacks;
	strcpy(stack->text, start);
	stack->blocks++;
	stack->bytes += bytes;
	pthread_mutex_unlock(&lock);
}

/* No tail call: its frame tells these blocks from the interpreter's own. */
__attribute__((noinline)) void oracle_block(size_t bytes)
{
	void *volatile block = malloc(bytes);

	free(block);
}

static PyObject *allocate(PyObject *module, PyObject *argument)
{
	size_t bytes = PyLong_AsSize_t(argument);

	(void)module;
	oracle_block(bytes);
	note(bytes);
	Py_RETURN_NONE;
}

static PyObject *allocate_released(PyObject *module, PyObject *argument)
{
	size_t bytes = PyLong_AsSize_t(argument);

	(void)module;
	note(bytes);
	Py_BEGIN_ALLOW_THREADS oracle_block(bytes);
	Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *dump(PyObject *module, PyObject *path)
{
	FILE *file = fopen(PyUnicode_AsUTF8(path), "w");

	(void)module;
	if (!file)
		return PyErr_SetFromErrno(PyExc_OSError);
	for (unsigned i = 0; i < STACKS; i++)
		if (stacks[i].blocks)
			fprintf(file, "%lu %lu %s\n", stacks[i].blocks, stacks[i].bytes,
				stacks[i].text);
	fclose(file);
	Py_RETURN_NONE;
}

static PyObject *reset(PyObject *module, PyObject *nothing)
{
	(void)module;
	(void)nothing;
	memset(stacks, 0, STACKS * sizeof(*stacks));
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{"allocate", allocate, METH_O, NULL},
	{"allocate_released", allocate_released, METH_O, NULL},
	{"dump", dump, METH_O, NULL},
	{"reset", reset, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "python_oracle", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_python_oracle(void)
{
	stacks = mmap(NULL, STACKS * sizeof(*stacks), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return stacks == MAP_FAILED ? PyErr_NoMemory() : PyModule_Create(&definition);
}
