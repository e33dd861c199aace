/* The rows that `run` and `sweep` share. */
#include "harness/cli/run_args.h"

#define AT(field) offsetof(struct run_args, field)

// clang-format off
const struct option common_run[] = {
    {.name = "backend", .type = OPT_STR, .offset = AT(backend), .unit = "BACKEND",
     .flags = OPTION_REQUIRED, .help = "what answers the requests, see below"},
    {.name = "option", .type = OPT_STR, .offset = AT(backend_options), .unit = "KEY=VALUE",
     .flags = CLI_LIST, .help = "set an option of the backend"},
    {.name = "set", .type = OPT_STR, .offset = AT(c.overrides), .unit = "PATH=VALUE",
     .flags = CLI_LIST,
     .help = "set a member of the workload's JSON; the record keeps the file and the effect"},
    {.name = "isl", .type = OPT_I64, .min = 1, .max = 1e9, .flags = CLI_OVERRIDE,
     .help = "input tokens of every request"},
    {.name = "osl", .type = OPT_I64, .min = 1, .max = 1e9, .flags = CLI_OVERRIDE,
     .help = "output tokens of every request"},
    {.name = "pattern", .type = OPT_STR, .unit = "PATTERN", .flags = CLI_OVERRIDE,
     .help = "offline, single, concurrency:N, poisson:RATE, constant:RATE, gamma:RATE,SHAPE or "
             "trace[:SPEED]"},
    {.name = "requests", .type = OPT_I64, .min = 1, .max = 1e12, .flags = CLI_OVERRIDE,
     .help = "measured requests"},
    {.name = "duration", .type = OPT_DURATION, .flags = CLI_OVERRIDE,
     .help = "how long requests are issued, such as 600s"},
    {.name = "warmup", .type = OPT_STR, .unit = "N|TIME", .flags = CLI_OVERRIDE,
     .help = "requests or time before the measured window"},
    {.name = "seed", .type = OPT_U64, .flags = CLI_OVERRIDE, .help = "of the plan"},
    {.name = "rules", .type = OPT_STR, .offset = AT(rules), .unit = "PACK",
     .help = "rule pack, shipped or a file; else the workload's"},
    {.name = "system", .type = OPT_STR, .offset = AT(system), .unit = "FILE",
     .help = "description of the system under test, see 'assay doctor'"},
    {.name = "campaign", .type = OPT_STR, .offset = AT(campaign), .unit = "NAME",
     .help = "the set of runs this is an attempt of; else of workload, system and rule pack"},
    {.name = "key", .type = OPT_STR, .offset = AT(key), .unit = "FILE",
     .help = "private key that signs the record; else the machine's runner key"},
    {.name = "threads", .type = OPT_I64, .offset = AT(threads), .min = 1, .max = 256, .def = "1",
     .help = "shards of the plan, each with its own backend instance"},
    {.name = "grace", .type = OPT_DURATION, .offset = AT(grace_ns), .def = "0s",
     .help = "how long requests in flight may drain when the window ends; 0s until they are done"},
    {.name = "scrape", .type = OPT_STR, .offset = AT(scrape), .unit = "off|auto|URL",
     .flags = CLI_LIST,
     .help = "read the server's Prometheus metrics beside the run; may be repeated for several servers; "
             "auto, the default, takes the endpoint's /metrics when there is such a page"},
    {.name = "scrape-interval", .type = OPT_DURATION, .offset = AT(scrape_interval_ns), .min = 1e7,
     .max = 3.6e12, .def = "1s", .help = "time between two readings of the metrics"},
    {.name = "telemetry", .type = OPT_STR, .offset = AT(telemetry), .unit = "FILE.csv",
     .flags = CLI_LIST,
     .help = "power and utilisation of the devices, as nvidia-smi, amd-smi or another tool writes them "
             "during the run; may be repeated; gives energy over the measured window"},
    {.name = "telemetry-tz", .type = OPT_STR, .offset = AT(telemetry_tz), .unit = "ZONE", .def = "local",
     .help = "zone of times that state none (nvidia-smi's): local, utc or an offset such as +02:00"},
    {.name = "telemetry-gap", .type = OPT_DURATION, .offset = AT(telemetry_gap_ns), .min = 1e6, .max = 3.6e12,
     .def = "5s", .help = "readings further apart than this leave a hole in the energy"},
    {.name = "dry-run", .type = OPT_BOOL, .offset = AT(dry_run),
     .help = "print the plan and its estimates, touch nothing"},
    {.name = "quiet", .type = OPT_BOOL, .offset = AT(c.quiet),
     .help = "no progress and no notes; of the result, the verdict's line"},
    {.name = "no-progress", .type = OPT_BOOL, .offset = AT(c.no_progress),
     .help = "no progress line on the terminal"},
    {0},
};
// clang-format on

void run_args_options(const struct run_args *a, struct progress *progress, struct run_options *o) {
    *o = (struct run_options){
        .workload = a->c.args.v[0],
        .overrides = a->c.overrides.v,
        .noverrides = a->c.overrides.n,
        .backend = a->backend,
        .backend_options = a->backend_options.v,
        .nbackend_options = a->backend_options.n,
        .db = a->c.db,
        .key = a->key,
        .system = a->system,
        .campaign = a->campaign,
        .rules = a->rules,
        .scrape = a->scrape.v,
        .nscrape = a->scrape.n,
        .scrape_interval_ns = a->scrape_interval_ns,
        .telemetry = a->telemetry.v,
        .ntelemetry = a->telemetry.n,
        .telemetry_tz = a->telemetry_tz,
        .telemetry_gap_ns = a->telemetry_gap_ns,
        .threads = a->threads,
        .grace_ns = a->grace_ns,
        .stop = &stop_flag,
    };
    if (progress && progress->on) {
        o->progress = progress_draw;
        o->progress_ctx = progress;
    }
}
