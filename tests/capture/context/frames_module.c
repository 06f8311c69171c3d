// The walk of frames alone as a module of Python, without torch, to try it on any interpreter.
#include <Python.h>

#include "frames.h"

static lw_codes codes;
static lw_walk seen;

static PyObject* listed(void) {
  PyObject* list = PyList_New(0);
  for (int at = 0; list != NULL && at < seen.count; ++at) {
    const lw_frame* frame = &seen.frames[at];
    PyObject* self = frame->self != NULL ? (PyObject*)frame->self : Py_None;
    PyObject* one = Py_BuildValue("OiO", (PyObject*)frame->code, lw_offset(frame), self);
    if (one == NULL || PyList_Append(list, one) < 0) Py_CLEAR(list);
    Py_XDECREF(one);
  }
  return list;
}

static PyObject* walk(PyObject* module, PyObject* args) {
  (void)module;
  int raw = 1;
  if (!PyArg_ParseTuple(args, "p", &raw)) return NULL;
  lw_activation all = {NULL, NULL};
  if (raw) {
    // Without the GIL, as in an operator.
    Py_BEGIN_ALLOW_THREADS;
    lw_walk_raw(&codes, all, 0, &seen);
    Py_END_ALLOW_THREADS;
  } else {
    lw_walk_public(&codes, all, 0, &seen);
  }
  return Py_BuildValue("Nii", listed(), seen.left_out, seen.reached_stop);
}

// What is kept between the innermost frame and the `depth`th one around it, when that one is the end.
static PyObject* walk_to(PyObject* module, PyObject* args) {
  (void)module;
  int raw = 1;
  int depth = 0;
  if (!PyArg_ParseTuple(args, "pi", &raw, &depth)) return NULL;
  lw_activation stop = {NULL, NULL};
  if (raw) {
    lw_walk_raw(&codes, stop, 0, &seen);
  } else {
    lw_walk_public(&codes, stop, 0, &seen);
  }
  if (depth >= seen.count) return PyErr_Format(PyExc_ValueError, "no frame %d", depth);
  stop.frame = seen.frames[depth].frame;
  stop.code = seen.frames[depth].code;
  if (raw) {
    lw_walk_raw(&codes, stop, 0, &seen);
  } else {
    lw_walk_public(&codes, stop, 0, &seen);
  }
  return Py_BuildValue("Nii", listed(), seen.left_out, seen.reached_stop);
}

static PyObject* hash(PyObject* module, PyObject* args) {
  (void)module;
  int raw = 1;
  if (!PyArg_ParseTuple(args, "p", &raw)) return NULL;
  lw_activation all = {NULL, NULL};
  if (raw) {
    lw_walk_raw(&codes, all, 0, &seen);
  } else {
    lw_walk_public(&codes, all, 0, &seen);
  }
  return PyLong_FromUnsignedLongLong(seen.hash);
}

static PyObject* module_call(PyObject* module, PyObject* code) {
  (void)module;
  Py_INCREF(code);
  codes.module_call = code;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"walk", walk, METH_VARARGS, "(frames, left out, reached the stop)"},
                                {"walk_to", walk_to, METH_VARARGS, "The same up to a frame."},
                                {"hash", hash, METH_VARARGS, "Of all frames."},
                                {"module_call", module_call, METH_O, "The code whose first local is the module."},
                                {NULL, NULL, 0, NULL}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "frames_module", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_frames_module(void) {
  PyObject* module = PyModule_Create(&definition);
  if (module != NULL) PyModule_AddIntConstant(module, "raw", lw_frames_are_raw());
  return module;
}
