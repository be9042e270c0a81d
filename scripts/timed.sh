#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a test, and says on its stderr how much of the processors it and its programs had: the same on a busy machine.
TIMEFORMAT='processor time: %U + %S s'
time "$@"
