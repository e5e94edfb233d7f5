#!/bin/sh
# The program of the tests: does what the file `script` beside the link to it says. Tests link it instead of writing one
# each, because a program that is still open for writing cannot be started.
. "$(dirname "$0")/script"
