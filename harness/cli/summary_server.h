/* The `server` and `power` objects of a summary or record as short tables. */
#ifndef HARNESS_CLI_SUMMARY_SERVER_H
#define HARNESS_CLI_SUMMARY_SERVER_H

#include "harness/core/arena.h"

#include <jansson.h>
#include <stdio.h>

/* What the server says, beside what the client says; nothing when server is NULL. */
void summary_server(const json_t *server, struct arena *a, FILE *out);
/* Energy, a line a device; nothing when power is NULL. */
void summary_power(const json_t *power, struct arena *a, FILE *out);

#endif
