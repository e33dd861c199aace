/* `assay doctor`: what this machine has, and what of it would spoil a measurement. */
#include "harness/cli/out.h"
#include "harness/cli/verbs.h"
#include "harness/run/doctor.h"

struct doctor_args {
    struct common c;
    bool system;
};

// clang-format off
static const struct option doctor_options[] = {
    {.name = "system", .type = OPT_BOOL, .offset = offsetof(struct doctor_args, system),
     .help = "print a first draft of the system description for --system, as JSON"},
    {0},
};
// clang-format on

/* Indented: a person goes on editing it. Still exactly one object. */
static int print_system(struct err *e) {
    json_t *system = NULL;
    int rc = doctor_system(&system, e);
    if (rc)
        return rc;
    json_dumpf(system, stdout, JSON_INDENT(2));
    putc('\n', stdout);
    json_decref(system);
    return 0;
}

static int run_doctor(void *options, struct err *e) {
    struct doctor_args *a = options;
    json_t *report = NULL;
    if (a->system)
        return print_system(e);
    struct err why = {0};
    int rc = doctor_report(&report, e);
    if (rc)
        return rc;
    if (doctor_client(report, &why)) /* no loopback here: the rest stands */
        fprintf(stderr, "assay: warn: the client's ceiling is not known: %s\n", why.text);
    if (a->c.json)
        out_json(report, stdout);
    else
        doctor_print(report, stdout);
    json_decref(report);
    return 0;
}

// clang-format off
const struct verb verb_doctor = {
    .name = "doctor",
    .usage = "",
    .summary = "what this machine has: topology, clock, libraries, limits that would spoil a measurement",
    .about =
        "Looks at processor, topology, clock, timers, load, memory, limits, accelerators and libraries, "
        "measures what a nap and a look at the clock cost, tries for two seconds how many streams one thread "
        "can read over loopback before the rule max_client_error would call a run invalid, and warns of "
        "what would spoil a measurement, with the reason and the remedy. Needs no privileges and changes "
        "nothing.",
    .examples = "assay doctor\n"
                "assay doctor --system > system.json\n",
    .args_min = 0,
    .args_max = 0,
    .options_size = sizeof(struct doctor_args),
    .options = (const struct option *const[]){doctor_options, common_output, NULL},
    .run = run_doctor,
};
// clang-format on
