/* `assay run`: one run, its record, its summary. */
#include "harness/cli/args.h"
#include "harness/cli/run_args.h"
#include "harness/cli/summary.h"
#include "harness/cli/verbs.h"
#include "harness/cli/what_if.h"

#include "harness/cli/out.h"

#include <string.h>

struct run_verb_args {
    struct run_args run; /* first: the shared rows' offsets are into it */
    const char *what_if;
};

// clang-format off
static const struct option run_options[] = {
    {.name = "what-if", .type = OPT_STR, .offset = offsetof(struct run_verb_args, what_if), .unit = "KEY=FACTORx,...",
     .help = "tpu-sim: run again for each, with that figure of the chip changed (hbm_gbps=1.5x), and show how the answer moves"},
    {0},
};
// clang-format on

static void notes(const struct run_args *a, const struct run_result *r) {
    if (a->c.quiet)
        return;
    if (r->key_created)
        fprintf(stderr, "assay: info: made the runner key '%s'\n", r->key_path);
    if (r->recovered_runs)
        fprintf(stderr, "assay: info: closed %d run%s that an earlier process left open\n",
                r->recovered_runs, r->recovered_runs == 1 ? "" : "s");
}

/* The closing line says where the record is, also when nobody named the store. */
static void print_summary(struct run_args *a, const json_t *summary) {
    struct store *s = NULL;
    bool open = !store_open(a->c.db, STORE_READ, &s, NULL, NULL);
    summary_print(summary, open ? store_path(s) : a->c.db, &a->c.arena, stdout);
    if (open)
        store_close(s);
}

static int dry_run(const struct run_args *a, const struct run_options *o, struct err *e) {
    json_t *plan = NULL;
    int rc = run_plan(o, &plan, e);
    if (rc)
        return rc;
    if (a->c.json)
        out_json(plan, stdout);
    else
        out_tree(plan, 0, stdout);
    json_decref(plan);
    return 0;
}

static int run_run(void *options, struct err *e) {
    struct run_verb_args *all = options;
    struct run_args *a = &all->run;
    json_t *moved = NULL;
    struct progress progress;
    progress_init(&progress, !a->c.quiet && !a->c.no_progress);
    struct run_options o;
    run_args_options(a, &progress, &o);
    if (a->dry_run)
        return dry_run(a, &o, e);
    if (all->what_if && what_if_check(all->what_if, &o, e))
        return e->code;
    stop_install();
    struct run_result r = {0};
    int rc = run_execute(&o, &r, e);
    progress_clear(&progress);
    if (rc && rc != ASSAY_ENEGATIVE && rc != ASSAY_EINTERRUPTED) {
        run_result_release(&r);
        return rc;
    }
    notes(a, &r);
    if (all->what_if && rc != ASSAY_EINTERRUPTED) {
        int failed = what_if_execute(all->what_if, &o, &r, &moved, e);
        progress_clear(&progress);
        if (failed)
            rc = failed;
        else
            json_object_set(r.summary, "what_if", moved);
    }
    if (a->c.json)
        out_json(r.summary, stdout);
    else if (a->c.quiet)
        summary_line(r.summary, stdout);
    else
        print_summary(a, r.summary);
    if (moved && !a->c.json && !a->c.quiet)
        what_if_print(moved, &a->c.arena, stdout);
    json_decref(moved);
    run_result_release(&r);
    return rc;
}

// clang-format off
const struct verb verb_run = {
    .name = "run",
    .usage = "WORKLOAD",
    .summary = "one run: workload x load pattern x backend; stores a signed record",
    .about =
        "Issues the workload's requests to the backend by the load pattern, logs every event, computes "
        "the metrics, judges them by the rule pack, signs the record and stores it. WORKLOAD is a "
        "shipped definition ('assay inspect --list') or a file.\n\n"
        "The run is entered in the store's register before the first request; an interrupted run is "
        "stored and marked partial. What stands behind the numbers (measured, emulated, simulated, "
        "projected or none) is inside the signature and in every heading.",
    .examples = "assay run inferencex-1k1k --backend tpu-sim -o chip=v6e -o chips=8\n"
                "assay run chat-serving --backend tpu-sim -o chip=v6e -o chips=8 --what-if hbm_gbps=1.5x,ici_link_gbps=2x\n"
                "assay run chat-serving --backend http -o url=http://127.0.0.1:8000 --duration 600s\n"
                "assay run chat-serving --backend null --requests 1000 --json\n",
    .args_min = 1,
    .args_max = 1,
    .options_size = sizeof(struct run_verb_args),
    .options = (const struct option *const[]){run_options, common_run, common_store, common_output, NULL},
    .backends = true,
    .run = run_run,
};
// clang-format on
