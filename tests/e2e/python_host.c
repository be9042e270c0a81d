/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with Python in it: python_host MODULES [SOURCE...]. Runs each source in the main interpreter, then in a
 * sub-interpreter, and calls Python from C that Python has called. MODULES: where python_oracle.so is.
 */
#include <Python.h>

#include <stdio.h>
#include <stdlib.h>

static PyObject *run_again(PyObject *module, PyObject *function)
{
	(void)module;
	return PyObject_CallObject(function, NULL);
}

static PyMethodDef methods[] = {
	{"run_again", run_again, METH_O, NULL},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "host", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

static PyObject *make_host(void)
{
	return PyModule_Create(&definition);
}

int main(int count, char **arguments)
{
	int r = 0;

	setenv("PYTHONPATH", arguments[1], 1);
	PyImport_AppendInittab("host", make_host);
	Py_Initialize();
	for (int i = 2; i < count; i++)
		r |= PyRun_SimpleString(arguments[i]);
	PyThreadState *own = PyThreadState_Get(), *other = Py_NewInterpreter();
	for (int i = 2; other && i < count; i++)
		r |= PyRun_SimpleString(arguments[i]);
	if (other)
		Py_EndInterpreter(other);
	PyThreadState_Swap(own);
	r |= PyRun_SimpleString("import python_oracle\npython_oracle.dump('dump')\n");
	Py_Finalize();
	return r != 0;
}
