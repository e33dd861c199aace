/* The verbs' rows, one a file. Named nowhere but in the table (verb.c). */
#ifndef HARNESS_CLI_VERBS_H
#define HARNESS_CLI_VERBS_H

#include "harness/cli/verb.h"

extern const struct verb verb_doctor, verb_help, verb_inspect, verb_key, verb_list, verb_price,
    verb_query, verb_run, verb_serve, verb_show, verb_sweep, verb_validate, verb_verify;

#endif
