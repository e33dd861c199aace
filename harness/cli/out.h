/* JSON on the way to a reader: one object for a program, an indented tree for a person. */
#ifndef HARNESS_CLI_OUT_H
#define HARNESS_CLI_OUT_H

#include "harness/core/err.h"

#include <jansson.h>
#include <stdio.h>

/* Exactly one line; members in their order, doubles with 17 digits. */
void out_json(const json_t *v, FILE *out);

/* "name  value" lines, nested by indentation; arrays of objects as numbered items. */
void out_tree(const json_t *v, int indent, FILE *out);

#endif
