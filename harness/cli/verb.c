/* The table of verbs, in the order of the contract, and the option tables that they share. */
#include "harness/cli/verb.h"

#include "harness/cli/verbs.h"

#include <signal.h>
#include <string.h>

// clang-format off
const struct verb *const verb_all[] = {
    &verb_run,
    &verb_sweep,
    &verb_verify,
    &verb_show,
    &verb_list,
    &verb_query,
    &verb_serve,
    &verb_inspect,
    &verb_validate,
    &verb_key,
    &verb_price,
    &verb_doctor,
    &verb_help,
    NULL,
};
// clang-format on

const struct verb *verb_find(const char *name) {
    for (const struct verb *const *v = verb_all; *v; v++)
        if (!strcmp((*v)->name, name))
            return *v;
    return NULL;
}

// clang-format off
const struct option common_output[] = {
    {.name = "json", .type = OPT_BOOL, .offset = offsetof(struct common, json),
     .help = "print exactly one JSON object"},
    {0},
};
// clang-format on

// clang-format off
const struct option common_store[] = {
    {.name = "db", .type = OPT_STR, .offset = offsetof(struct common, db), .unit = "FILE",
     .help = "the store; else $ASSAY_DB, else $XDG_DATA_HOME/assay/assay.db"},
    {0},
};
// clang-format on

// clang-format off
const struct option common_help[] = {
    {.name = "help", .type = OPT_BOOL, .offset = offsetof(struct common, help),
     .help = "print this and do nothing"},
    {0},
};
// clang-format on

/* Written by the handler, read by every driver thread through a pointer; int is sig_atomic_t here.
 */
volatile int stop_flag;
_Static_assert(_Generic((sig_atomic_t)0, int : 1, default : 0),
               "the stop flag is set in a handler");

static void on_signal(int number) {
    if (stop_flag) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stop_flag = 1;
}

void stop_install(void) {
    struct sigaction a = {.sa_handler = on_signal};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}
